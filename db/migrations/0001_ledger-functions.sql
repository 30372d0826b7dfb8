ALTER TABLE "accounts" SET (fillfactor = 50);
--> statement-breakpoint
ALTER TABLE "attempts" SET (fillfactor = 70);
--> statement-breakpoint
ALTER TABLE "instances" SET (fillfactor = 50);
--> statement-breakpoint
-- Emits budget.threshold and budget.exhausted for the given key periods, each at most once for a key,
-- period and window: the bits in accounts.budget_events remember, under the lock of the row.
-- With p_exhausted, a refusal that spend alone explains counts as having reached the budget.
CREATE FUNCTION emit_budget_events(p_accounts text[], p_exhausted boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  WITH budgeted AS (
    SELECT a.id, a.organization_id, a.posted_nano, a.budget_events, k.id AS key_id, k.name AS key_name,
      CASE a.kind WHEN 'day' THEN 'daily' ELSE 'monthly' END AS period,
      CASE a.kind WHEN 'day' THEN k.daily_budget_nano ELSE k.monthly_budget_nano END AS budget_nano,
      CASE a.kind WHEN 'day' THEN a.period_start + 1 ELSE (a.period_start + interval '1 month')::date END AS ends
    FROM accounts a JOIN api_keys k ON k.id = a.key_id
    WHERE a.id = ANY (p_accounts) AND a.kind IN ('day', 'month')
  ), crossed AS (
    -- Shares are taken off the budget: a multiple of it could go beyond what a bigint holds.
    SELECT b.*, (
      CASE WHEN posted_nano > 0 AND posted_nano >= budget_nano - budget_nano / 2 THEN 1 ELSE 0 END
      | CASE WHEN posted_nano > 0 AND posted_nano >= budget_nano - budget_nano / 5 THEN 2 ELSE 0 END
      | CASE WHEN p_exhausted OR (posted_nano > 0 AND posted_nano >= budget_nano) THEN 4 ELSE 0 END
    ) & ~budget_events AS fresh
    FROM budgeted b WHERE budget_nano IS NOT NULL
  ), marked AS (
    UPDATE accounts a SET budget_events = a.budget_events | c.fresh
    FROM crossed c WHERE a.id = c.id AND c.fresh <> 0
  ), events AS (
    SELECT c.*, e.percent, e.type, e.rank
    FROM crossed c JOIN (VALUES
      (1, 50, 'budget.threshold', 1), (2, 80, 'budget.threshold', 2),
      (4, 100, 'budget.threshold', 3), (4, 100, 'budget.exhausted', 4)
    ) AS e (bit, percent, type, rank) ON c.fresh & e.bit <> 0
  )
  INSERT INTO outbox (event_id, organization_id, type, data)
  SELECT 'evt_' || replace(gen_random_uuid()::text, '-', ''), organization_id, type,
    jsonb_build_object(
      'key_id', key_id, 'key_name', key_name, 'threshold_percent', percent, 'period', period,
      'budget_usd', trim_scale(budget_nano / 1e9), 'spent_usd', trim_scale(posted_nano / 1e9),
      'period_end', to_char(ends, 'YYYY-MM-DD"T"00:00:00"Z"'))
  FROM events ORDER BY id, rank;
END
$$;
--> statement-breakpoint
-- One batch of the ledger in one statement, so that it costs one round trip and commits as a whole.
-- What many settlements of a batch have in common (their key, model and provider) is sent once, as a
-- group; names are short because their bytes are most of what a batch costs its sender.
-- p_new_accounts: key periods that may not have a row yet. p_recheck: the outcome of an earlier try is
-- unknown, so requests that are already posted are passed over.
-- Returns the totals of every account it touched, as [[id, credit_nano, posted_nano, sequence], …].
CREATE FUNCTION ledger_commit(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  p_instance text := p_batch->>'instance';
  p_epoch bigint := p_batch->>'epoch';
  p_new_accounts jsonb := p_batch->'new_accounts';
  p_checkpoints jsonb := p_batch->'checkpoints';
  p_groups jsonb := p_batch->'groups';
  p_settlements jsonb := p_batch->'settlements';
  p_recheck boolean := p_batch ? 'recheck';
  p_account_ids text[];
  v_locked bigint;
  v_totals jsonb;
  v_periods text[];
BEGIN
  -- The fence. It must be a locking read of its own: a condition inside another statement would be
  -- judged by that statement's old snapshot after a wait. A key share conflicts with the FOR UPDATE of
  -- whoever declares the instance dead, and not with its heartbeats.
  PERFORM 1 FROM instances WHERE id = p_instance AND epoch = p_epoch AND alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'instance % was declared dead', p_instance USING ERRCODE = 'GW001';
  END IF;

  IF p_checkpoints IS NOT NULL THEN
    INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
      day_account, month_account, hold_nano, charge_nano, model, provider, prompt_tokens,
      completion_tokens, estimated, latency_ms, details, started_at)
    SELECT c.request_id, p_instance, p_epoch, c.organization_id, c.key_id, c.org_account,
      c.day_account, c.month_account, c.hold_nano, c.charge_nano, c.model, c.provider, c.prompt_tokens,
      c.completion_tokens, c.estimated, c.latency_ms, c.details, c.started_at
    FROM jsonb_to_recordset(p_checkpoints) AS c (request_id text, organization_id text, key_id text,
      org_account text, day_account text, month_account text, hold_nano bigint, charge_nano bigint,
      model text, provider text, prompt_tokens bigint, completion_tokens bigint, estimated boolean,
      latency_ms integer, details jsonb, started_at timestamptz)
    ON CONFLICT (request_id) DO UPDATE SET charge_nano = EXCLUDED.charge_nano,
      completion_tokens = EXCLUDED.completion_tokens, prompt_tokens = EXCLUDED.prompt_tokens,
      latency_ms = EXCLUDED.latency_ms;
  END IF;

  IF p_settlements IS NULL THEN
    RETURN '[]'::jsonb;
  END IF;

  IF p_new_accounts IS NOT NULL THEN
    INSERT INTO accounts (id, kind, organization_id, key_id, period_start)
    SELECT n.id, n.kind, n.organization_id, n.key_id, n.period_start
    FROM jsonb_to_recordset(p_new_accounts)
      AS n (id text, kind text, organization_id text, key_id text, period_start date)
    ORDER BY n.id
    ON CONFLICT (id) DO NOTHING;
  END IF;

  p_account_ids := ARRAY(SELECT jsonb_array_elements_text(p_batch->'account_ids'));
  -- Batches that lock in the order of ids cannot deadlock.
  PERFORM 1 FROM accounts WHERE id = ANY (p_account_ids) ORDER BY id FOR UPDATE;
  -- Without its accounts a charge must fail, not vanish. p_account_ids holds each of them once.
  GET DIAGNOSTICS v_locked = ROW_COUNT;
  IF v_locked < cardinality(p_account_ids) THEN
    RAISE EXCEPTION 'a charge without its account' USING ERRCODE = 'not_null_violation';
  END IF;

  WITH settlements AS MATERIALIZED (
    SELECT s.n AS position, s.r AS request_id, 'txn_' || substr(s.r, 5) AS transaction_id,
      g.organization_id, g.key_id, g.org_account, g.day_account, g.month_account, s.c AS charge_nano,
      g.model, g.provider, g.status, s.p AS prompt_tokens, coalesce(s.cp, 0) AS cached_prompt_tokens,
      s.o AS completion_tokens, coalesce(s.ro, 0) AS reasoning_tokens, g.estimated, s.l AS latency_ms,
      s.d AS details, g.description, coalesce(s.a, false) AS has_attempt
    FROM jsonb_to_recordset(p_settlements) AS s (n integer, g integer, r text, c bigint, p bigint,
      cp bigint, o bigint, ro bigint, l integer, d jsonb, a boolean)
    JOIN jsonb_to_recordset(p_groups) AS g (g integer, organization_id text, key_id text,
      org_account text, day_account text, month_account text, model text, provider text,
      status integer, estimated boolean, description text) ON g.g = s.g
    WHERE NOT p_recheck OR NOT EXISTS (SELECT 1 FROM transactions t WHERE t.request_id = s.r)
  ), organizations AS (
    UPDATE accounts a SET posted_nano = a.posted_nano + d.charge_nano, sequence = a.sequence + d.count
    FROM (
      SELECT org_account, sum(charge_nano)::bigint AS charge_nano, count(*) AS count
      FROM settlements GROUP BY org_account
    ) d WHERE a.id = d.org_account
    RETURNING a.id, a.credit_nano, a.posted_nano, a.sequence, a.sequence - d.count AS first_sequence,
      a.credit_nano - a.posted_nano + d.charge_nano AS first_balance_nano
  ), periods AS (
    UPDATE accounts a SET posted_nano = a.posted_nano + d.charge_nano, last_used_at = clock_timestamp()
    FROM (
      SELECT account, sum(charge_nano)::bigint AS charge_nano FROM (
        SELECT day_account AS account, charge_nano FROM settlements
        UNION ALL SELECT month_account, charge_nano FROM settlements
      ) both_periods GROUP BY account
    ) d WHERE a.id = d.account
    RETURNING a.id, a.posted_nano
  ), posted AS (
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, request_id, model, provider, status, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, estimated, latency_ms, details)
    SELECT s.organization_id, o.first_sequence + row_number() OVER w, s.transaction_id, 'usage',
      -s.charge_nano, o.first_balance_nano - sum(s.charge_nano) OVER w, s.description, s.key_id,
      s.request_id, s.model, s.provider, s.status, s.prompt_tokens, s.cached_prompt_tokens,
      s.completion_tokens, s.reasoning_tokens, s.estimated, s.latency_ms, s.details
    FROM settlements s LEFT JOIN organizations o ON o.id = s.org_account
    WINDOW w AS (PARTITION BY s.org_account ORDER BY s.position ROWS UNBOUNDED PRECEDING)
  ), settled AS (
    DELETE FROM attempts WHERE request_id IN (SELECT request_id FROM settlements WHERE has_attempt)
  )
  SELECT jsonb_agg(jsonb_build_array(id, credit_nano::text, posted_nano::text, sequence::text)),
    array_agg(id) FILTER (WHERE is_period)
  INTO v_totals, v_periods
  FROM (
    SELECT id, credit_nano, posted_nano, sequence, false AS is_period FROM organizations
    UNION ALL SELECT id, 0, posted_nano, 0, true FROM periods
  ) touched;

  IF p_recheck THEN
    -- What an earlier try had posted may have left its attempt row to us, and its totals unread.
    DELETE FROM attempts WHERE request_id IN (
      SELECT s.r FROM jsonb_to_recordset(p_settlements) AS s (r text));
    SELECT jsonb_agg(jsonb_build_array(id, credit_nano::text, posted_nano::text, sequence::text)) INTO v_totals
    FROM accounts WHERE id = ANY (p_account_ids);
  END IF;

  PERFORM emit_budget_events(v_periods, false);
  RETURN coalesce(v_totals, '[]'::jsonb);
END
$$;
--> statement-breakpoint
-- Posts a top-up, refund or adjustment. A negative amount takes at most what is not held, by rows of holds
-- or, beside them, by the caller.
-- Returns NULL where that would be exceeded or the organization is unknown.
CREATE FUNCTION ledger_post_credit(
  p_transaction text, p_organization text, p_type text, p_amount_nano bigint, p_description text,
  p_held_nano bigint
) RETURNS transactions
LANGUAGE plpgsql AS $$
DECLARE
  v_account accounts;
  v_transaction transactions;
BEGIN
  UPDATE accounts SET credit_nano = credit_nano + p_amount_nano, sequence = sequence + 1
  WHERE id = 'org:' || p_organization
    AND (p_amount_nano >= 0 OR credit_nano - posted_nano - held_nano - p_held_nano + p_amount_nano >= 0)
  RETURNING * INTO v_account;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano, description)
  VALUES (p_organization, v_account.sequence, p_transaction, p_type, p_amount_nano,
    v_account.credit_nano - v_account.posted_nano, p_description)
  RETURNING * INTO v_transaction;
  INSERT INTO changes (kind, object_id) VALUES ('organization', p_organization);
  PERFORM pg_notify('gateway_changes', 'organization ' || p_organization);
  RETURN v_transaction;
END
$$;
