-- A database in which an earlier version has overspent keeps that: there the guard holds for what changes
-- from now on, and is told to be incomplete.
ALTER TABLE "accounts" ADD CONSTRAINT "accounts_within_credit" CHECK (kind <> 'org' OR credit_nano + credit_limit_nano >= posted_nano + held_nano) NOT VALID;--> statement-breakpoint
ALTER TABLE "accounts" ADD CONSTRAINT "accounts_posted" CHECK (posted_nano >= 0) NOT VALID;--> statement-breakpoint
ALTER TABLE "accounts" ADD CONSTRAINT "accounts_held" CHECK (held_nano >= 0) NOT VALID;--> statement-breakpoint
ALTER TABLE "accounts" ADD CONSTRAINT "accounts_credit_limit" CHECK (credit_limit_nano BETWEEN 0 AND 1000000000000000000) NOT VALID;--> statement-breakpoint
DO $$
DECLARE
  v_name text;
BEGIN
  FOREACH v_name IN ARRAY ARRAY['accounts_within_credit', 'accounts_posted', 'accounts_held', 'accounts_credit_limit']
  LOOP
    BEGIN
      EXECUTE format('ALTER TABLE accounts VALIDATE CONSTRAINT %I', v_name);
    EXCEPTION WHEN check_violation THEN
      RAISE WARNING 'accounts that an earlier version left behind violate %', v_name;
    END;
  END LOOP;
END
$$;
--> statement-breakpoint
-- As before; and thresholds come in ascending order: what is exhausted has passed those below as well.
-- Emits budget.threshold and budget.exhausted for the given key periods, each at most once for a key,
-- period and window: the bits in accounts.budget_events remember, under the lock of the row.
-- With p_exhausted, a refusal that spend alone explains counts as having reached the budget.
CREATE OR REPLACE FUNCTION emit_budget_events(p_accounts text[], p_exhausted boolean) RETURNS void
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
      CASE WHEN p_exhausted OR (posted_nano > 0 AND posted_nano >= budget_nano) THEN 7
        WHEN posted_nano > 0 AND posted_nano >= budget_nano - budget_nano / 5 THEN 3
        WHEN posted_nano > 0 AND posted_nano >= budget_nano - budget_nano / 2 THEN 1
        ELSE 0 END
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
-- As before; and nothing is charged without a hold: a dead instance is charged for holds that stand in the
-- database, or that a single-node gateway had in its memory. A try that is repeated and refused this time
-- leaves no attempt of the time before. What early beginnings need is left for the version before.
CREATE OR REPLACE FUNCTION ledger_exchange(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  p_instance text := p_batch->>'instance';
  p_epoch bigint := p_batch->>'epoch';
  p_recheck boolean := p_batch ? 'recheck';
  p_settlements jsonb := p_batch->'settlements';
  p_checkpoints jsonb := p_batch->'checkpoints';
  p_new_accounts jsonb := p_batch->'new_accounts';
  v_ids text[] := ARRAY(SELECT jsonb_array_elements_text(p_batch->'account_ids'));
  v_posted_before text[] := '{}';
  v_held bigint[] := '{}';
  v_limit bigint[];
  v_unspent bigint[];
  v_free bigint[];
  v_active boolean[];
  v_balance bigint[];
  v_sequence bigint[];
  v_charged bigint[];
  v_moved bigint[];
  v_count bigint[];
  v_blocked boolean[];
  v_granted text[] := '{}';
  v_granted_nano bigint[] := '{}';
  v_granted_o integer[] := '{}';
  v_granted_d integer[] := '{}';
  v_granted_m integer[] := '{}';
  v_refused text[] := '{}';
  v_verdicts jsonb[] := '{}';
  v_available bigint;
  v_size bigint;
  v_tokens numeric;
  v_updated bigint;
  h record;
BEGIN
  -- The fence. It must be a locking read of its own: a condition inside another statement would be
  -- judged by that statement's old snapshot after a wait. A key share keeps heartbeats going; whoever
  -- declares this instance dead takes its row FOR UPDATE.
  PERFORM 1 FROM instances WHERE id = p_instance AND epoch = p_epoch AND alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'instance % was declared dead', p_instance USING ERRCODE = 'GW001';
  END IF;

  IF p_new_accounts IS NOT NULL THEN
    INSERT INTO accounts (id, kind, organization_id, key_id, period_start)
    SELECT n.id, n.kind, n.organization_id, n.key_id, n.period_start
    FROM jsonb_to_recordset(p_new_accounts)
      AS n (id text, kind text, organization_id text, key_id text, period_start date)
    ORDER BY n.id
    ON CONFLICT (id) DO NOTHING;
  END IF;

  -- Batches that lock in the order of ids cannot deadlock.
  PERFORM 1 FROM accounts WHERE id = ANY (v_ids) ORDER BY id FOR UPDATE;

  -- What follows reads behind the locks: nobody changes these totals before this batch is over, and a
  -- budget that is read here is in force while the holds below are admitted.
  IF p_recheck THEN
    v_posted_before := ARRAY(
      SELECT t.request_id FROM transactions t WHERE t.request_id IN (
        SELECT s.r FROM jsonb_to_recordset(p_settlements) AS s (r text)));
  END IF;

  SELECT array_agg(limit_nano), array_agg(limit_nano - posted_nano),
    array_agg(limit_nano - posted_nano - held_nano), array_agg(is_active),
    array_agg(balance_nano), array_agg(sequence), array_agg(0), array_agg(0),
    array_agg(0), array_agg(false)
  INTO v_limit, v_unspent, v_free, v_active, v_balance, v_sequence, v_charged, v_moved, v_count, v_blocked
  FROM (
    SELECT coalesce(a.posted_nano, 0) AS posted_nano, coalesce(a.held_nano, 0) AS held_nano, k.is_active,
      CASE WHEN a.kind IN ('day', 'month') THEN 0 ELSE a.sequence END AS sequence,
      CASE a.kind WHEN 'day' THEN k.daily_budget_nano WHEN 'month' THEN k.monthly_budget_nano
        WHEN 'org' THEN a.credit_nano + a.credit_limit_nano ELSE 0 END AS limit_nano,
      coalesce(a.credit_nano - a.posted_nano, 0) AS balance_nano
    FROM unnest(v_ids) WITH ORDINALITY AS i (id, place)
    LEFT JOIN accounts a ON a.id = i.id
    LEFT JOIN api_keys k ON k.id = a.key_id AND k.deleted_at IS NULL
    ORDER BY i.place
  ) of_each;

  FOR h IN
    DELETE FROM holds USING jsonb_to_recordset(p_batch->'ended')
      AS e (n integer, r text, o integer, d integer, m integer)
    -- The accounts are those that were locked, or it does not end here.
    WHERE holds.id = e.r AND holds.org_account = v_ids[e.o] AND holds.day_account = v_ids[e.d]
      AND holds.month_account = v_ids[e.m]
    RETURNING e.n, e.o, e.d, e.m, holds.hold_nano AS nano
  LOOP
    v_held[h.n] := h.nano;
    v_moved[h.o] := v_moved[h.o] - h.nano;
    v_moved[h.d] := v_moved[h.d] - h.nano;
    v_moved[h.m] := v_moved[h.m] - h.nano;
    v_free[h.o] := v_free[h.o] + h.nano;
    v_free[h.d] := v_free[h.d] + h.nano;
    v_free[h.m] := v_free[h.m] + h.nano;
  END LOOP;

  FOR h IN
    SELECT * FROM jsonb_to_recordset(p_batch->'ended')
      AS e (n integer, r text, o integer, d integer, m integer, c bigint) WHERE c IS NOT NULL
  LOOP
    CONTINUE WHEN h.r = ANY (v_posted_before);
    -- A single-node gateway has held in its memory: of such a dead one the attempt tells the hold.
    IF v_held[h.n] IS NULL AND p_batch ? 'reaping' THEN
      v_held[h.n] := (
        SELECT a.hold_nano FROM attempts a JOIN instances i ON i.id = a.instance_id AND i.epoch = a.epoch
        WHERE a.request_id = h.r AND i.is_alone);
    END IF;
    IF h.c > coalesce(v_held[h.n], 0) THEN
      RAISE EXCEPTION 'a charge goes beyond its hold' USING ERRCODE = 'GW002';
    END IF;
    v_charged[h.o] := v_charged[h.o] + h.c;
    v_charged[h.d] := v_charged[h.d] + h.c;
    v_charged[h.m] := v_charged[h.m] + h.c;
    v_count[h.o] := v_count[h.o] + 1;
    v_count[h.d] := v_count[h.d] + 1;
    v_count[h.m] := v_count[h.m] + 1;
    v_unspent[h.o] := v_unspent[h.o] - h.c;
    v_unspent[h.d] := v_unspent[h.d] - h.c;
    v_unspent[h.m] := v_unspent[h.m] - h.c;
    v_free[h.o] := v_free[h.o] - h.c;
    v_free[h.d] := v_free[h.d] - h.c;
    v_free[h.m] := v_free[h.m] - h.c;
  END LOOP;

  FOR h IN
    SELECT * FROM jsonb_to_recordset(p_batch->'holds') AS d (r text, o integer, d integer, m integer,
      f numeric, q numeric, w text, c bigint, fx numeric, pt numeric, fee numeric, x numeric)
  LOOP
    CONTINUE WHEN h.r = ANY (v_posted_before);
    v_size := NULL;
    -- Without any limit only what a bigint can count is.
    v_available := coalesce(least(v_free[h.o], v_free[h.d], v_free[h.m]), 9223372036854775807);
    IF v_active[h.d] IS NOT TRUE THEN
      v_verdicts := v_verdicts || jsonb_build_object('r', h.r, 'a', v_active[h.d]);
    ELSIF h.w IS DISTINCT FROM 'last' AND (v_blocked[h.o] OR v_blocked[h.d]) THEN
      v_verdicts := v_verdicts || jsonb_build_object('r', h.r, 'b', true);
    ELSIF h.f <= v_available THEN
      v_size := h.f;
    ELSIF h.q <= v_available THEN
      v_tokens := least(h.x, div(div(v_available * 10000000000::numeric, 10000 + h.fee) - h.fx, h.pt));
      v_size := div((h.fx + h.pt * v_tokens) * (10000 + h.fee) + 9999999999, 10000000000);
      v_verdicts := v_verdicts || jsonb_build_object('r', h.r, 'h', v_size::text, 't', v_tokens);
    ELSE
      v_verdicts := v_verdicts || jsonb_build_object('r', h.r, 'a', true,
        'o', jsonb_build_array(v_limit[h.o]::text, v_unspent[h.o]::text, v_free[h.o]::text),
        'd', jsonb_build_array(v_limit[h.d]::text, v_unspent[h.d]::text, v_free[h.d]::text),
        'm', jsonb_build_array(v_limit[h.m]::text, v_unspent[h.m]::text, v_free[h.m]::text));
      -- Whoever needs what an earlier one waits for stands behind it; nobody waits for what is spent.
      IF h.w IS NULL AND h.q <= coalesce(v_unspent[h.o], h.q)
        AND h.q <= coalesce(v_unspent[h.d], h.q) AND h.q <= coalesce(v_unspent[h.m], h.q)
      THEN
        IF h.q > v_free[h.o] THEN v_blocked[h.o] := true; ELSE v_blocked[h.d] := true; END IF;
      END IF;
    END IF;

    IF v_size IS NULL THEN
      v_refused := v_refused || h.r;
    ELSIF h.c IS NULL THEN
      v_granted := v_granted || h.r;
      v_granted_nano := v_granted_nano || v_size;
      v_granted_o := v_granted_o || h.o;
      v_granted_d := v_granted_d || h.d;
      v_granted_m := v_granted_m || h.m;
      v_moved[h.o] := v_moved[h.o] + v_size;
      v_moved[h.d] := v_moved[h.d] + v_size;
      v_moved[h.m] := v_moved[h.m] + v_size;
      v_free[h.o] := v_free[h.o] - v_size;
      v_free[h.d] := v_free[h.d] - v_size;
      v_free[h.m] := v_free[h.m] - v_size;
    ELSIF h.c <= v_size THEN
      v_charged[h.o] := v_charged[h.o] + h.c;
      v_charged[h.d] := v_charged[h.d] + h.c;
      v_charged[h.m] := v_charged[h.m] + h.c;
      v_count[h.o] := v_count[h.o] + 1;
      v_count[h.d] := v_count[h.d] + 1;
      v_count[h.m] := v_count[h.m] + 1;
      v_unspent[h.o] := v_unspent[h.o] - h.c;
      v_unspent[h.d] := v_unspent[h.d] - h.c;
      v_unspent[h.m] := v_unspent[h.m] - h.c;
      v_free[h.o] := v_free[h.o] - h.c;
      v_free[h.d] := v_free[h.d] - h.c;
      v_free[h.m] := v_free[h.m] - h.c;
    ELSE
      RAISE EXCEPTION 'a charge goes beyond its hold' USING ERRCODE = 'GW002';
    END IF;
  END LOOP;

  IF cardinality(v_granted) > 0 THEN
    INSERT INTO holds (id, instance_id, epoch, org_account, day_account, month_account, hold_nano)
    SELECT n.id, p_instance, p_epoch, v_ids[n.o], v_ids[n.d], v_ids[n.m], n.nano
    FROM unnest(v_granted, v_granted_nano, v_granted_o, v_granted_d, v_granted_m)
      AS n (id, nano, o, d, m);
  END IF;

  UPDATE accounts a SET posted_nano = a.posted_nano + u.charged, held_nano = a.held_nano + u.moved,
    sequence = a.sequence + CASE a.kind WHEN 'org' THEN u.count ELSE 0 END,
    last_used_at = CASE WHEN u.count > 0 AND a.kind <> 'org' THEN clock_timestamp() ELSE a.last_used_at END
  FROM unnest(v_ids, v_charged, v_moved, v_count) AS u (id, charged, moved, count)
  WHERE a.id = u.id AND (u.count > 0 OR u.moved <> 0);
  -- Without its accounts a charge must fail, not vanish.
  GET DIAGNOSTICS v_updated = ROW_COUNT;
  IF v_updated < (SELECT count(*) FROM unnest(v_moved, v_count) AS u (moved, count) WHERE u.count > 0 OR u.moved <> 0)
    AND EXISTS (
      SELECT 1 FROM unnest(v_ids, v_count) AS u (id, count)
      WHERE u.count > 0 AND NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = u.id))
  THEN
    RAISE EXCEPTION 'a charge without its account' USING ERRCODE = 'not_null_violation';
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
    WHERE c.request_id <> ALL (v_refused)
    ON CONFLICT (request_id) DO UPDATE SET charge_nano = EXCLUDED.charge_nano,
      completion_tokens = EXCLUDED.completion_tokens, prompt_tokens = EXCLUDED.prompt_tokens,
      latency_ms = EXCLUDED.latency_ms;
  END IF;

  IF p_settlements IS NOT NULL THEN
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, request_id, model, provider, status, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, estimated, latency_ms, details)
    SELECT g.organization_id, v_sequence[g.o] + row_number() OVER w, 'txn_' || substr(s.r, 5), 'usage',
      -s.c, v_balance[g.o] - sum(s.c) OVER w, g.description, g.key_id, s.r, g.model, g.provider, g.status,
      s.p, coalesce(s.cp, 0), s.o, coalesce(s.ro, 0), g.estimated, s.l, s.d
    FROM jsonb_to_recordset(p_settlements) AS s (n integer, g integer, r text, c bigint, p bigint,
      cp bigint, o bigint, ro bigint, l integer, d jsonb, h boolean)
    JOIN jsonb_to_recordset(p_batch->'groups') AS g (g integer, o integer, organization_id text,
      key_id text, model text, provider text, status integer, estimated boolean, description text)
      ON g.g = s.g
    WHERE s.r <> ALL (v_posted_before) AND (s.h IS NULL OR s.r <> ALL (v_refused))
    WINDOW w AS (PARTITION BY g.o ORDER BY s.n ROWS UNBOUNDED PRECEDING);

    PERFORM emit_budget_events(
      ARRAY(SELECT u.id FROM unnest(v_ids, v_count) AS u (id, count) WHERE u.count > 0), false);
  END IF;

  -- What an earlier try of this batch has written of a request ends with its hold.
  IF p_recheck AND cardinality(v_refused) > 0 THEN
    DELETE FROM attempts WHERE request_id = ANY (v_refused);
  END IF;
  IF p_batch ? 'attempts' THEN
    DELETE FROM attempts WHERE request_id IN (SELECT jsonb_array_elements_text(p_batch->'attempts'));
  END IF;
  RETURN jsonb_build_object('free', v_free::text[], 'verdicts', v_verdicts);
END
$$;
