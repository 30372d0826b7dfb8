-- Raises GW001 if the instance was declared dead. This is a locking read in a statement of its own: after a wait, a
-- condition inside another statement would be judged by that statement's old snapshot. The key share conflicts with the
-- FOR UPDATE of the instance that declares it dead, and not with heartbeats.
--
-- Called by ledger_settle_batch and ledger_exchange_batch.
CREATE OR REPLACE FUNCTION ledger_fence(p_batch jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM instances
  WHERE id = p_batch->>'instance' AND epoch = (p_batch->>'epoch')::bigint AND alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'instance % was declared dead', p_batch->>'instance' USING ERRCODE = 'GW001';
  END IF;
END
$$;
