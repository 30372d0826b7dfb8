-- Raises GW002 if the lease has a new owner, or if the instance was declared dead. It is the first statement of each
-- transaction of an owner: until the transaction ends, no other instance takes the actor over or declares this one
-- dead. It locks the instance first, as ledger transactions and the reaper do.
--
-- Called by guardLease in db/queries/actor-leases.ts.
CREATE OR REPLACE FUNCTION guard_lease(
  p_kind text, p_id text, p_epoch bigint, p_instance text, p_instance_epoch bigint
) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  PERFORM 1 FROM instances WHERE id = p_instance AND epoch = p_instance_epoch AND alive FOR KEY SHARE;
  IF FOUND THEN
    PERFORM 1 FROM actor_leases
    WHERE kind = p_kind AND id = p_id AND epoch = p_epoch
      AND instance_id = p_instance AND instance_epoch = p_instance_epoch
    FOR SHARE;
  END IF;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the lease of % % has another owner', p_kind, p_id USING ERRCODE = 'GW002';
  END IF;
END
$$;
