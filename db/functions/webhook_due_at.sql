-- Returns when the first delivery of a webhook is due. Returns null if it has none, or is disabled. It is volatile, so
-- that a statement that waited for the row of the queue sees what was committed in the meantime.
--
-- The functions of events and deliveries have plans that do not depend on statistics. Their tables grow from empty to
-- hundreds of thousands of rows between two runs of ANALYZE, and a session keeps its plans. A join that was planned for
-- one row would read the whole table, or its whole index, for each batch. So each of these statements finds its rows
-- one by one: by a loop, or by a lateral subquery with LIMIT, which the planner cannot reorder. Without sequential
-- scans the only path to such a row is its index.
--
-- Called by commit_deliveries, db/queries/deliveries.ts, and db/queries/webhooks.ts.
CREATE OR REPLACE FUNCTION webhook_due_at(p_webhook text) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_due timestamptz;
BEGIN
  PERFORM 1 FROM webhooks WHERE id = p_webhook AND enabled;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT coalesce(next_attempt_at, clock_timestamp()) INTO v_due FROM deliveries
  WHERE webhook_id = p_webhook AND status = 'pending' ORDER BY sequence LIMIT 1;
  RETURN v_due;
END
$$;
