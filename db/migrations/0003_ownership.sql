-- How long an instance counts as alive after its last heartbeat, by this server's clock. The gateway
-- reckons with the same (INSTANCE_LEASE_MS in db/queries/instances.ts).
CREATE FUNCTION instance_lease() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '3 seconds' $$;
--> statement-breakpoint
CREATE VIEW live_instances AS
SELECT id, epoch FROM instances
WHERE alive AND heartbeat_at > clock_timestamp() - instance_lease();
--> statement-breakpoint
-- Actors that somebody alive acts for. Work of the others is free to be taken over.
CREATE VIEW owned_actors AS
SELECT l.kind, l.id FROM actor_leases l
JOIN live_instances i ON i.id = l.instance_id AND i.epoch = l.instance_epoch;
--> statement-breakpoint
-- Takes those of the actors that nobody alive owns, or that this instance owns already, each with a new
-- epoch. A lease that somebody is writing under, or claiming, is passed over: the next look finds it.
-- Without p_judges an instance that was not declared dead counts as alive, however old its heartbeat is:
-- after an outage of this server those of all are old.
CREATE FUNCTION claim_leases(
  p_kind text, p_ids text[], p_instance text, p_instance_epoch bigint, p_judges boolean
)
RETURNS TABLE (id text, epoch bigint)
LANGUAGE plpgsql AS $$
DECLARE
  v_locked text[];
BEGIN
  -- A key share: the reaper's FOR UPDATE waits for it, and it for that, but no heartbeat does.
  PERFORM 1 FROM instances i WHERE i.id = p_instance AND i.epoch = p_instance_epoch AND i.alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  INSERT INTO actor_leases (kind, id, epoch)
  SELECT DISTINCT p_kind, wanted, 0 FROM unnest(p_ids) AS wanted ORDER BY wanted
  ON CONFLICT ON CONSTRAINT actor_leases_kind_id_pk DO NOTHING;
  v_locked := ARRAY(
    SELECT l.id FROM actor_leases l WHERE l.kind = p_kind AND l.id = ANY (p_ids)
    ORDER BY l.id FOR UPDATE SKIP LOCKED);
  -- A statement of its own, whose snapshot is younger than the locks.
  RETURN QUERY
  UPDATE actor_leases l
  SET instance_id = p_instance, instance_epoch = p_instance_epoch, epoch = l.epoch + 1
  WHERE l.kind = p_kind AND l.id = ANY (v_locked)
    AND (l.instance_id = p_instance OR NOT EXISTS (
      SELECT 1 FROM instances i WHERE i.id = l.instance_id AND i.epoch = l.instance_epoch AND i.alive
        AND (NOT p_judges OR i.heartbeat_at > clock_timestamp() - instance_lease())))
  RETURNING l.id, l.epoch;
END
$$;
--> statement-breakpoint
-- To be the first statement of every transaction of an owner: until that ends nobody takes the actor
-- over and nobody declares the instance dead. Raises GW002 where either has happened. The locks are
-- taken in the order in which a ledger transaction and a reaper take them: the instance comes first.
CREATE FUNCTION guard_lease(
  p_kind text, p_id text, p_epoch bigint, p_instance text, p_instance_epoch bigint
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM instances WHERE id = p_instance AND epoch = p_instance_epoch AND alive FOR KEY SHARE;
  IF FOUND THEN
    PERFORM 1 FROM actor_leases
    WHERE kind = p_kind AND id = p_id AND epoch = p_epoch
      AND instance_id = p_instance AND instance_epoch = p_instance_epoch
    FOR SHARE;
  END IF;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the lease of % % has passed on', p_kind, p_id USING ERRCODE = 'GW002';
  END IF;
END
$$;
