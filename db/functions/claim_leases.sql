-- Claims actors that no live instance owns, or that this instance owns already, and gives each lease a new epoch.
-- Returns the claimed leases. Skips a lease that another transaction has locked; the next sweep finds it. If p_judges
-- is false, an instance counts as alive until it is declared dead, however old its heartbeat is: after an outage of
-- this server all heartbeats are old.
--
-- Called by claimLeases in db/queries/actor-leases.ts.
CREATE OR REPLACE FUNCTION claim_leases(
  p_kind text, p_ids text[], p_instance text, p_instance_epoch bigint, p_judges boolean
)
RETURNS TABLE (id text, epoch bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_locked text[];
  v_id text;
BEGIN
  -- The key share and the reaper's FOR UPDATE wait for each other. Heartbeats wait for neither.
  PERFORM 1 FROM instances i
  WHERE i.id = p_instance AND i.epoch = p_instance_epoch AND i.alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  INSERT INTO actor_leases (kind, id, epoch)
  SELECT DISTINCT p_kind, wanted, 0 FROM unnest(p_ids) AS wanted ORDER BY wanted
  ON CONFLICT ON CONSTRAINT actor_leases_kind_id_pk DO NOTHING;
  v_locked := ARRAY(
    SELECT locked.id FROM (SELECT DISTINCT wanted FROM unnest(p_ids) AS wanted ORDER BY wanted) w
    CROSS JOIN LATERAL (
      SELECT l.id FROM actor_leases l WHERE l.kind = p_kind AND l.id = w.wanted
      LIMIT 1 FOR UPDATE SKIP LOCKED) locked);
  -- Separate statements, because their snapshots are newer than the locks. One statement for each id: before version
  -- 17, Postgres may read all leases of a kind for an array of ids.
  FOREACH v_id IN ARRAY v_locked LOOP
    RETURN QUERY
    UPDATE actor_leases l
    SET instance_id = p_instance, instance_epoch = p_instance_epoch, epoch = l.epoch + 1
    WHERE l.kind = p_kind AND l.id = v_id
      AND (l.instance_id = p_instance OR NOT EXISTS (
        SELECT 1 FROM instances i WHERE i.id = l.instance_id AND i.epoch = l.instance_epoch AND i.alive
          AND (NOT p_judges OR i.heartbeat_at > clock_timestamp() - instance_lease())))
    RETURNING l.id, l.epoch;
  END LOOP;
END
$$;
