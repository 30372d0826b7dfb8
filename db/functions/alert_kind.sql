-- Returns the kind of alert that an event is. Returns null if it is none. The kinds are those of src/lib/alerts.ts.
--
-- Called by queue_alerts.
CREATE OR REPLACE FUNCTION alert_kind(p_type text, p_data jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE p_type
    WHEN 'credits.low' THEN 'balance'
    WHEN 'budget.threshold' THEN 'budgets'
    WHEN 'budget.exhausted' THEN 'budgets'
    WHEN 'payment.failed' THEN 'payments'
    WHEN 'payment.disputed' THEN 'payments'
    WHEN 'credits.replenish_failed' THEN 'payments'
    WHEN 'requests.error_rate' THEN 'requests'
    WHEN 'batch.failed' THEN 'jobs'
    WHEN 'batch.completed' THEN
      CASE WHEN (p_data->'request_counts'->>'failed')::bigint > 0
        AND (p_data->'request_counts'->>'failed')::bigint * 2 >= (p_data->'request_counts'->>'total')::bigint
      THEN 'jobs' END
    WHEN 'fine_tuning.job.failed' THEN 'jobs'
    WHEN 'webhook.disabled' THEN 'webhooks'
  END
$$;
