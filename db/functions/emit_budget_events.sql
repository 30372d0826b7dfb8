-- Emits budget.threshold and budget.exhausted for periods of keys, teams, members, end users and tags, each at most once
-- per period. Bits of budget_events record which events were emitted, under the lock of the account's row. Thresholds
-- follow charges alone, in ascending order. If p_exhausted is true, the budgets have caused a 402. Then it emits
-- budget.exhausted, and the threshold of 100 % if at least 95 % are spent, because holds keep the amount spent below the
-- budget.
--
-- Called by ledger_settle_batch, ledger_exchange_batch, and queries that change budgets or reject requests.
CREATE OR REPLACE FUNCTION emit_budget_events(p_accounts text[], p_exhausted boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  WITH budgeted AS (
    SELECT a.id, a.organization_id, a.posted_nano, a.budget_events, k.id AS key_id, k.name AS key_name,
      NULL AS subject_type, NULL AS subject_id,
      CASE a.kind WHEN 'day' THEN 'daily' ELSE 'monthly' END AS period,
      CASE a.kind WHEN 'day' THEN k.daily_budget_nano ELSE k.monthly_budget_nano END AS budget_nano,
      CASE a.kind WHEN 'day' THEN a.period_start + 1 ELSE (a.period_start + interval '1 month')::date END AS ends
    -- Only days and months of keys have a key. With a condition on kind, Postgres could read the whole index
    -- accounts_key.
    FROM accounts a CROSS JOIN LATERAL (SELECT * FROM api_keys WHERE api_keys.id = a.key_id LIMIT 1) k
    WHERE a.id = ANY (p_accounts)
    UNION ALL
    SELECT a.id, a.organization_id, a.posted_nano, a.budget_events, NULL, NULL, b.subject_type, b.subject_value,
      CASE a.kind WHEN 'subject_day' THEN 'daily' ELSE 'monthly' END,
      CASE a.kind WHEN 'subject_day' THEN b.daily_budget_nano ELSE b.monthly_budget_nano END,
      CASE a.kind WHEN 'subject_day' THEN a.period_start + 1 ELSE (a.period_start + interval '1 month')::date END
    FROM accounts a JOIN subject_budgets b ON b.id = a.budget_id
    WHERE a.id = ANY (p_accounts)
  ), crossed AS (
    -- Subtracts shares from the budget, because a multiple of it could overflow a bigint.
    SELECT b.*, (
      CASE WHEN posted_nano <= 0 THEN 0
        WHEN posted_nano >= budget_nano - CASE WHEN p_exhausted THEN budget_nano / 20 ELSE 0 END THEN 7
        WHEN posted_nano >= budget_nano - budget_nano / 5 THEN 3
        WHEN posted_nano >= budget_nano - budget_nano / 2 THEN 1
        ELSE 0 END
      | CASE WHEN p_exhausted THEN 8 ELSE 0 END
    ) & ~budget_events AS fresh
    FROM budgeted b WHERE budget_nano IS NOT NULL
  ), marked AS (
    UPDATE accounts a SET budget_events = a.budget_events | c.fresh
    FROM crossed c WHERE a.id = c.id AND a.id = ANY (p_accounts) AND c.fresh <> 0
  ), events AS (
    SELECT c.*, e.percent, e.type, e.bit
    FROM crossed c JOIN (VALUES
      (1, 50, 'budget.threshold'), (2, 80, 'budget.threshold'),
      (4, 100, 'budget.threshold'), (8, 100, 'budget.exhausted')
    ) AS e (bit, percent, type) ON c.fresh & e.bit <> 0
  )
  INSERT INTO outbox (event_id, organization_id, type, data)
  SELECT 'evt_' || replace(gen_random_uuid()::text, '-', ''), organization_id, type,
    jsonb_build_object(
      'key_id', key_id, 'key_name', key_name, 'threshold_percent', percent, 'period', period,
      'budget_usd', trim_scale(budget_nano / 1e9), 'spent_usd', trim_scale(posted_nano / 1e9),
      'period_end', to_char(ends, 'YYYY-MM-DD"T"00:00:00"Z"'))
    || CASE WHEN subject_type IS NULL THEN '{}'
      ELSE jsonb_build_object('subject', jsonb_build_object('type', subject_type, 'id', subject_id)) END
  FROM events ORDER BY id, bit;
END
$$;
