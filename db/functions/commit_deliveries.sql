-- Writes what the owners of webhooks have decided, for many webhooks in one statement and one commit. Members of
-- p_batch:
--   instance, epoch   the instance that writes
--   leases            {w: webhook, e: epoch} for every webhook that the other members name
--   attempts          {w, o: outbox id, n: number of attempts before it, s: new status, a: the attempt as it is
--                     listed, d: milliseconds until the next attempt}
--   disabled          {w, v: version of the webhook that failed}
--   rested            webhooks whose due time is computed again
-- Returns {lost: webhooks whose lease another owner has; nothing is written for these}. Skips changes that are already
-- written, so that a batch of unknown outcome can be sent again. Locks the rows of each table in the order of their
-- ids, as every transaction does that locks several of them.
--
-- Finds its rows one by one: see webhook_due_at. Called by commitDeliveries in db/queries/deliveries.ts.
CREATE OR REPLACE FUNCTION commit_deliveries(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_instance text := p_batch->>'instance';
  v_epoch bigint := p_batch->>'epoch';
  v_is_alive boolean;
  v_held text[] := '{}';
  v_lost text[] := '{}';
  r record;
BEGIN
  PERFORM 1 FROM instances WHERE id = v_instance AND epoch = v_epoch AND alive FOR KEY SHARE;
  v_is_alive := FOUND;
  FOR r IN
    SELECT * FROM jsonb_to_recordset(p_batch->'leases') AS wanted (w text, e bigint) ORDER BY wanted.w
  LOOP
    IF v_is_alive THEN
      PERFORM 1 FROM actor_leases
      WHERE kind = 'webhook' AND id = r.w AND epoch = r.e AND instance_id = v_instance AND instance_epoch = v_epoch
      FOR SHARE;
    END IF;
    IF v_is_alive AND FOUND THEN
      v_held := v_held || r.w;
    ELSE
      v_lost := v_lost || r.w;
    END IF;
  END LOOP;

  FOR r IN
    SELECT * FROM jsonb_to_recordset(p_batch->'attempts')
      AS made (w text, o bigint, n integer, s text, a jsonb, d float8)
    WHERE made.w = ANY (v_held) ORDER BY made.w, made.o, made.n
  LOOP
    -- finished_at is null while the delivery is pending. With a condition on the status, Postgres could choose the
    -- index of pending deliveries, and would read all of the webhook's.
    UPDATE deliveries SET status = r.s, attempt_count = attempt_count + 1, attempts = attempts || r.a,
      next_attempt_at = clock_timestamp() + r.d * interval '1 millisecond',
      finished_at = CASE WHEN r.s <> 'pending' THEN clock_timestamp() END
    WHERE webhook_id = r.w AND outbox_id = r.o AND finished_at IS NULL AND attempt_count = r.n;
  END LOOP;

  FOR r IN
    SELECT * FROM jsonb_to_recordset(p_batch->'disabled') AS failed (w text, v bigint)
    WHERE failed.w = ANY (v_held) ORDER BY failed.w
  LOOP
    UPDATE webhooks SET enabled = false, disabled_at = clock_timestamp(), disabled_by = 'failures',
      version = version + 1
    WHERE id = r.w AND version = r.v AND enabled;
    IF FOUND THEN
      INSERT INTO changes (kind, object_id) VALUES ('webhook', r.w);
      PERFORM pg_notify('gateway_changes', 'webhook ' || r.w);
    END IF;
  END LOOP;

  FOR r IN
    SELECT rested.w FROM jsonb_array_elements_text(p_batch->'rested') AS rested (w)
    WHERE rested.w = ANY (v_held) ORDER BY rested.w
  LOOP
    -- Computed under the lock, so that it includes a delivery that was numbered in the meantime.
    PERFORM 1 FROM webhook_queues WHERE webhook_id = r.w FOR NO KEY UPDATE;
    UPDATE webhook_queues SET due_at = webhook_due_at(webhook_id) WHERE webhook_id = r.w;
  END LOOP;
  RETURN jsonb_build_object('lost', to_jsonb(v_lost));
END
$$;
