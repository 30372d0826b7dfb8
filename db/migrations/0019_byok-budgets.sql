ALTER TABLE "attempts" ADD COLUMN "budget_hold_nano" bigint;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "budget_charge_nano" bigint;--> statement-breakpoint
ALTER TABLE "holds" ADD COLUMN "budget_nano" bigint;--> statement-breakpoint
ALTER TABLE "transactions" ADD COLUMN "budget_nano" bigint;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "budget_includes_byok" boolean DEFAULT false NOT NULL;--> statement-breakpoint
-- The budgets of a key may count calls that the organization's own provider keys serve, which its balance does
-- not: holds, checkpoints and charges then have a second amount. Where it is absent both are the same, as in all
-- that instances of the previous release send.
--
-- What an instance that died would have counted against the budgets of the key; null: its charge. The previous
-- release reaps without telling it.
CREATE FUNCTION ledger_reaped_budget(p_batch jsonb, p_request text) RETURNS bigint
LANGUAGE sql AS $$
  SELECT a.budget_charge_nano FROM attempts a WHERE p_batch ? 'reaping' AND a.request_id = p_request
$$;--> statement-breakpoint
-- As in 0016, with the amounts of the budgets.
CREATE OR REPLACE FUNCTION ledger_keep_checkpoints(p_batch jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
    day_account, month_account, hold_nano, charge_nano, budget_hold_nano, budget_charge_nano, model,
    provider, prompt_tokens, cached_prompt_tokens, completion_tokens, reasoning_tokens, quantities,
    estimated, latency_ms, details, description, started_at)
  SELECT c.request_id, p_batch->>'instance', (p_batch->>'epoch')::bigint, c.organization_id, c.key_id,
    c.org_account, c.day_account, c.month_account, c.hold_nano, c.charge_nano, c.budget_hold_nano,
    c.budget_charge_nano, c.model, c.provider, c.prompt_tokens, c.cached_prompt_tokens, c.completion_tokens, c.reasoning_tokens, c.quantities,
    c.estimated, c.latency_ms, c.details, c.description, c.started_at
  FROM jsonb_to_recordset(p_batch->'checkpoints') AS c (request_id text, organization_id text,
    key_id text, org_account text, day_account text, month_account text, hold_nano bigint,
    charge_nano bigint, budget_hold_nano bigint, budget_charge_nano bigint, model text, provider text, prompt_tokens bigint, cached_prompt_tokens bigint,
    completion_tokens bigint, reasoning_tokens bigint, quantities jsonb, estimated boolean,
    latency_ms integer, details jsonb, description text, started_at timestamptz)
  ON CONFLICT (request_id) DO UPDATE SET hold_nano = EXCLUDED.hold_nano,
    charge_nano = EXCLUDED.charge_nano, budget_hold_nano = EXCLUDED.budget_hold_nano,
    budget_charge_nano = EXCLUDED.budget_charge_nano, prompt_tokens = EXCLUDED.prompt_tokens,
    cached_prompt_tokens = EXCLUDED.cached_prompt_tokens, completion_tokens = EXCLUDED.completion_tokens,
    reasoning_tokens = EXCLUDED.reasoning_tokens, quantities = EXCLUDED.quantities,
    estimated = EXCLUDED.estimated, latency_ms = EXCLUDED.latency_ms;
END
$$;--> statement-breakpoint
-- As in 0016, with budget_nano of settlements. The charges of accounts are sent for each by itself.
CREATE OR REPLACE FUNCTION ledger_settle_batch(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  v_sequence bigint[];
  v_balance bigint[];
  v_totals text[] := '{}';
  v_near text[] := '{}';
  v_budget bigint;
  t record;
  a accounts;
BEGIN
  PERFORM ledger_fence(p_batch);
  IF p_batch ? 'new_accounts' THEN
    PERFORM ledger_create_accounts(p_batch->'new_accounts');
  END IF;

  IF p_batch ? 'recheck' AND p_batch ? 'settlements' THEN
    PERFORM 1 FROM accounts
    WHERE id IN (SELECT charged.id FROM jsonb_to_recordset(p_batch->'accounts') AS charged (id text))
    ORDER BY id FOR UPDATE;
    -- Behind the locks: what a writer that still ran has posted is seen.
    PERFORM 1 FROM transactions
    WHERE request_id IN (
      SELECT s.request_id FROM jsonb_to_recordset(p_batch->'settlements') AS s (request_id text));
    IF FOUND THEN
      RETURN NULL;
    END IF;
  END IF;

  IF p_batch ? 'checkpoints' THEN
    PERFORM ledger_keep_checkpoints(p_batch);
  END IF;

  IF NOT p_batch ? 'accounts' THEN
    RETURN to_jsonb(v_totals);
  END IF;
  -- Batches that lock in the order of ids cannot deadlock.
  FOR t IN
    SELECT * FROM jsonb_to_recordset(p_batch->'accounts')
      AS charged (place integer, id text, charge_nano bigint, count bigint)
    ORDER BY charged.id
  LOOP
    UPDATE accounts SET posted_nano = posted_nano + t.charge_nano, sequence = sequence + t.count,
      last_used_at = CASE kind WHEN 'org' THEN last_used_at ELSE clock_timestamp() END
    WHERE id = t.id
    RETURNING * INTO a;
    -- Without its accounts a charge must fail, not vanish.
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a charge without its account' USING ERRCODE = 'not_null_violation';
    END IF;
    v_totals[3 * t.place - 2] := a.credit_nano::text;
    v_totals[3 * t.place - 1] := a.posted_nano::text;
    v_totals[3 * t.place] := a.sequence::text;
    IF a.kind = 'org' THEN
      v_sequence[t.place] := a.sequence - t.count;
      v_balance[t.place] := a.credit_nano - a.posted_nano + t.charge_nano;
    ELSIF a.budget_events < 7 THEN
      SELECT CASE a.kind WHEN 'day' THEN daily_budget_nano ELSE monthly_budget_nano END INTO v_budget
      FROM api_keys WHERE id = a.key_id;
      IF a.posted_nano >= v_budget - v_budget / 2 THEN
        v_near := v_near || a.id;
      END IF;
    END IF;
  END LOOP;

  IF p_batch ? 'settlements' THEN
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, request_id, model, provider, status, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, quantities, estimated, latency_ms, details,
      budget_nano)
    SELECT g.organization_id, v_sequence[g.account] + s.position, 'txn_' || substr(s.request_id, 5), 'usage',
      -s.charge_nano, v_balance[g.account] - s.sum_nano, g.description, g.key_id, s.request_id, g.model,
      g.provider, g.status, s.prompt_tokens, coalesce(s.cached_prompt_tokens, 0), s.completion_tokens,
      coalesce(s.reasoning_tokens, 0), s.quantities, g.estimated, s.latency_ms, s.details,
      s.budget_nano
    FROM jsonb_to_recordset(p_batch->'settlements') AS s (position bigint, "group" integer,
      request_id text, charge_nano bigint, sum_nano bigint, prompt_tokens bigint,
      cached_prompt_tokens bigint, completion_tokens bigint, reasoning_tokens bigint, quantities jsonb,
      latency_ms integer, details jsonb, budget_nano bigint)
    JOIN jsonb_to_recordset(p_batch->'groups') AS g ("group" integer, account integer,
      organization_id text, key_id text, model text, provider text, status integer, estimated boolean,
      description text)
      ON g."group" = s."group";
  END IF;

  IF p_batch ? 'attempts' THEN
    DELETE FROM attempts WHERE request_id IN (SELECT jsonb_array_elements_text(p_batch->'attempts'));
  END IF;
  -- Below half a budget there is no event to emit.
  IF cardinality(v_near) > 0 THEN
    PERFORM emit_budget_events(v_near, false);
  END IF;
  RETURN to_jsonb(v_totals);
END
$$;--> statement-breakpoint
-- As in 0016, with budget_nano of ended holds and of settlements, and budget_full_nano, budget_least_nano and
-- budget_most_nano of holds: what is asked for of the accounts of the key, where that is not what is asked for
-- of the organization's. The verdict of a lowered hold has held_nano and budget_nano.
CREATE OR REPLACE FUNCTION ledger_exchange_batch(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  v_instance text := p_batch->>'instance';
  v_epoch bigint := p_batch->>'epoch';
  v_ids text[] := ARRAY(SELECT jsonb_array_elements_text(p_batch->'account_ids'));
  v_posted_before text[] := '{}';
  v_ended_nano bigint[] := '{}';
  v_ended_budget bigint[] := '{}';
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
  v_granted_budget bigint[] := '{}';
  v_verdicts jsonb[] := '{}';
  v_available bigint;
  v_of_budget bigint;
  v_before bigint;
  v_budget_before bigint;
  v_size bigint;
  v_budget bigint;
  v_at integer;
  v_nano bigint;
  h record;
BEGIN
  PERFORM ledger_fence(p_batch);
  IF p_batch ? 'new_accounts' THEN
    PERFORM ledger_create_accounts(p_batch->'new_accounts');
  END IF;

  -- Batches that lock in the order of ids cannot deadlock.
  PERFORM 1 FROM accounts WHERE id = ANY (v_ids) ORDER BY id FOR UPDATE;

  -- What follows reads behind the locks: no other writer changes these totals before this batch is over, and
  -- a budget that is read here is in force while the holds below are admitted.
  IF p_batch ? 'recheck' THEN
    v_posted_before := ARRAY(
      SELECT t.request_id FROM transactions t WHERE t.request_id IN (
        SELECT s.request_id FROM jsonb_to_recordset(p_batch->'settlements') AS s (request_id text)));
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
      AS e (position integer, request_id text, accounts integer[])
    -- The accounts are those that were locked, or the hold does not end here.
    WHERE holds.id = e.request_id AND holds.org_account = v_ids[e.accounts[1]]
      AND holds.day_account = v_ids[e.accounts[2]] AND holds.month_account = v_ids[e.accounts[3]]
    RETURNING e.position, e.accounts, holds.hold_nano,
      coalesce(holds.budget_nano, holds.hold_nano) AS budget_nano
  LOOP
    v_ended_nano[h.position] := h.hold_nano;
    v_ended_budget[h.position] := h.budget_nano;
    FOREACH v_at IN ARRAY h.accounts LOOP
      v_nano := CASE WHEN v_at = h.accounts[1] THEN h.hold_nano ELSE h.budget_nano END;
      v_moved[v_at] := v_moved[v_at] - v_nano;
      v_free[v_at] := v_free[v_at] + v_nano;
    END LOOP;
  END LOOP;

  FOR h IN
    SELECT * FROM jsonb_to_recordset(p_batch->'ended')
      AS e (position integer, request_id text, accounts integer[], charge_nano bigint,
        budget_nano bigint)
    WHERE e.charge_nano IS NOT NULL AND e.request_id <> ALL (v_posted_before)
  LOOP
    -- A single-node gateway holds in its memory: of a dead one the attempt says what it held.
    IF v_ended_nano[h.position] IS NULL AND p_batch ? 'reaping' THEN
      SELECT a.hold_nano, coalesce(a.budget_hold_nano, a.hold_nano) INTO v_size, v_budget
      FROM attempts a JOIN instances i ON i.id = a.instance_id AND i.epoch = a.epoch
      WHERE a.request_id = h.request_id AND i.is_alone;
      v_ended_nano[h.position] := v_size;
      v_ended_budget[h.position] := v_budget;
    END IF;
    v_budget := coalesce(h.budget_nano, ledger_reaped_budget(p_batch, h.request_id), h.charge_nano);
    IF h.charge_nano > coalesce(v_ended_nano[h.position], 0)
      OR v_budget > coalesce(v_ended_budget[h.position], 0)
    THEN
      RAISE EXCEPTION 'a charge goes beyond its hold' USING ERRCODE = 'GW002';
    END IF;
    FOREACH v_at IN ARRAY h.accounts LOOP
      -- Without its accounts a charge must fail, not vanish.
      IF v_sequence[v_at] IS NULL THEN
        RAISE EXCEPTION 'a charge without its account' USING ERRCODE = 'not_null_violation';
      END IF;
      v_nano := CASE WHEN v_at = h.accounts[1] THEN h.charge_nano ELSE v_budget END;
      v_charged[v_at] := v_charged[v_at] + v_nano;
      v_count[v_at] := v_count[v_at] + 1;
      v_unspent[v_at] := v_unspent[v_at] - v_nano;
      v_free[v_at] := v_free[v_at] - v_nano;
    END LOOP;
  END LOOP;

  FOR h IN
    SELECT d.*, d.accounts[1] AS org, d.accounts[2] AS day, d.accounts[3] AS month,
      d.budget_full_nano IS NOT NULL AS has_budget, coalesce(d.budget_full_nano, d.full_nano) AS budget_full,
      coalesce(d.budget_least_nano, d.least_nano) AS budget_least
    FROM jsonb_to_recordset(p_batch->'holds') AS d (request_id text, accounts integer[],
      full_nano numeric, least_nano numeric, most_nano numeric, budget_full_nano numeric,
      budget_least_nano numeric, budget_most_nano numeric, is_last boolean, extends boolean)
  LOOP
    v_before := 0;
    v_budget_before := 0;
    IF h.extends THEN
      SELECT holds.hold_nano, coalesce(holds.budget_nano, holds.hold_nano) INTO v_before, v_budget_before
      FROM holds WHERE holds.id = h.request_id AND holds.instance_id = v_instance
        AND holds.epoch = v_epoch AND holds.org_account = v_ids[h.org]
        AND holds.day_account = v_ids[h.day] AND holds.month_account = v_ids[h.month];
      CONTINUE WHEN v_before >= h.full_nano AND v_budget_before >= h.budget_full;
    END IF;
    v_size := NULL;
    -- Without any limit only what a bigint can count is. What an extended hold has is available to it.
    v_available := coalesce(v_free[h.org] + v_before, 9223372036854775807);
    v_of_budget := coalesce(least(v_free[h.day], v_free[h.month]) + v_budget_before, 9223372036854775807);
    IF v_before IS NULL THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'gone', true);
    ELSIF v_active[h.day] IS NOT TRUE THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'is_active', v_active[h.day]);
    ELSIF h.is_last IS NOT TRUE AND ((v_blocked[h.org] AND h.full_nano > 0) OR v_blocked[h.day]) THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'blocked', true);
    ELSIF h.full_nano <= v_available AND h.budget_full <= v_of_budget THEN
      v_size := h.full_nano;
      v_budget := h.budget_full;
    ELSIF h.least_nano <= v_available AND h.budget_least <= v_of_budget THEN
      IF h.has_budget THEN
        v_size := least(coalesce(h.most_nano, h.full_nano), v_available);
        v_budget := least(coalesce(h.budget_most_nano, h.budget_full), v_of_budget);
      ELSE
        v_size := least(h.most_nano, v_available, v_of_budget);
        v_budget := v_size;
      END IF;
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'held_nano', v_size::text,
        'budget_nano', v_budget::text);
    ELSE
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'is_active', true,
        'organization', jsonb_build_array(v_limit[h.org]::text, v_unspent[h.org]::text, v_free[h.org]::text),
        'day', jsonb_build_array(v_limit[h.day]::text, v_unspent[h.day]::text, v_free[h.day]::text),
        'month', jsonb_build_array(v_limit[h.month]::text, v_unspent[h.month]::text, v_free[h.month]::text));
      -- A later row that needs what this one waits for stands behind it; no row waits for what is spent.
      IF h.is_last IS NOT TRUE AND h.least_nano <= coalesce(v_unspent[h.org], h.least_nano)
        AND h.budget_least <= coalesce(v_unspent[h.day], h.budget_least)
        AND h.budget_least <= coalesce(v_unspent[h.month], h.budget_least)
      THEN
        IF h.least_nano > v_free[h.org] THEN
          v_blocked[h.org] := true;
        ELSE
          v_blocked[h.day] := true;
        END IF;
      END IF;
    END IF;
    CONTINUE WHEN v_size IS NULL;

    IF h.extends THEN
      UPDATE holds SET hold_nano = v_size, budget_nano = CASE WHEN h.has_budget THEN v_budget END
      WHERE id = h.request_id;
    ELSE
      v_granted := v_granted || h.request_id;
      v_granted_nano := v_granted_nano || v_size;
      v_granted_budget := array_append(v_granted_budget, CASE WHEN h.has_budget THEN v_budget END);
    END IF;
    FOREACH v_at IN ARRAY h.accounts LOOP
      v_nano := CASE WHEN v_at = h.org THEN v_size - v_before ELSE v_budget - v_budget_before END;
      v_moved[v_at] := v_moved[v_at] + v_nano;
      v_free[v_at] := v_free[v_at] - v_nano;
    END LOOP;
  END LOOP;

  IF cardinality(v_granted) > 0 THEN
    INSERT INTO holds (id, instance_id, epoch, org_account, day_account, month_account, hold_nano,
      budget_nano)
    SELECT g.id, v_instance, v_epoch, v_ids[d.accounts[1]], v_ids[d.accounts[2]], v_ids[d.accounts[3]], g.nano,
      g.budget
    FROM unnest(v_granted, v_granted_nano, v_granted_budget) AS g (id, nano, budget)
    JOIN jsonb_to_recordset(p_batch->'holds') AS d (request_id text, accounts integer[])
      ON d.request_id = g.id;
  END IF;

  UPDATE accounts a SET posted_nano = a.posted_nano + u.charged, held_nano = a.held_nano + u.moved,
    sequence = a.sequence + CASE a.kind WHEN 'org' THEN u.count ELSE 0 END,
    last_used_at = CASE WHEN u.count > 0 AND a.kind <> 'org' THEN clock_timestamp() ELSE a.last_used_at END
  FROM unnest(v_ids, v_charged, v_moved, v_count) AS u (id, charged, moved, count)
  WHERE a.id = u.id AND (u.count > 0 OR u.moved <> 0);

  IF p_batch ? 'checkpoints' THEN
    PERFORM ledger_keep_checkpoints(p_batch);
  END IF;

  IF p_batch ? 'settlements' THEN
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, request_id, model, provider, status, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, quantities, estimated, latency_ms, details,
      budget_nano)
    SELECT g.organization_id, v_sequence[g.account] + row_number() OVER w, 'txn_' || substr(s.request_id, 5),
      'usage', -s.charge_nano, v_balance[g.account] - sum(s.charge_nano) OVER w, g.description, g.key_id,
      s.request_id, g.model, g.provider, g.status, s.prompt_tokens, coalesce(s.cached_prompt_tokens, 0),
      s.completion_tokens, coalesce(s.reasoning_tokens, 0), s.quantities, g.estimated, s.latency_ms, s.details,
      coalesce(s.budget_nano, ledger_reaped_budget(p_batch, s.request_id))
    FROM jsonb_to_recordset(p_batch->'settlements') AS s (position integer, "group" integer,
      request_id text, charge_nano bigint, prompt_tokens bigint, cached_prompt_tokens bigint,
      completion_tokens bigint, reasoning_tokens bigint, quantities jsonb, latency_ms integer, details jsonb,
      budget_nano bigint)
    JOIN jsonb_to_recordset(p_batch->'groups') AS g ("group" integer, account integer,
      organization_id text, key_id text, model text, provider text, status integer, estimated boolean,
      description text)
      ON g."group" = s."group"
    WHERE s.request_id <> ALL (v_posted_before)
    WINDOW w AS (PARTITION BY g.account ORDER BY s.position ROWS UNBOUNDED PRECEDING);

    PERFORM emit_budget_events(
      ARRAY(SELECT u.id FROM unnest(v_ids, v_count) AS u (id, count) WHERE u.count > 0), false);
  END IF;

  IF p_batch ? 'attempts' THEN
    DELETE FROM attempts WHERE request_id IN (SELECT jsonb_array_elements_text(p_batch->'attempts'));
  END IF;
  RETURN to_jsonb(v_verdicts);
END
$$;--> statement-breakpoint
-- As in 0015; what the budgets counted is given back to them, also where nothing was charged.
CREATE OR REPLACE FUNCTION ledger_refund(
  p_transaction text, p_request text, p_day_account text, p_month_account text, p_description text
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_charge transactions;
  v_account accounts;
  v_amount bigint;
  v_budget bigint;
BEGIN
  SELECT * INTO v_charge FROM transactions WHERE request_id = p_request;
  v_budget := coalesce(v_charge.budget_nano, -v_charge.amount_nano);
  IF NOT FOUND OR (v_charge.amount_nano = 0 AND v_budget = 0) THEN
    RETURN false;
  END IF;
  -- In the order in which batches lock.
  PERFORM 1 FROM accounts
  WHERE id IN ('org:' || v_charge.organization_id, p_day_account, p_month_account) ORDER BY id FOR UPDATE;
  -- Behind the locks: what another writer has given back is seen.
  PERFORM 1 FROM transactions WHERE refunded_request_id = p_request;
  IF FOUND THEN
    RETURN false;
  END IF;
  v_amount := -v_charge.amount_nano - refunded_nano(v_charge);
  IF v_amount <= 0 AND v_charge.amount_nano <> 0 THEN
    RETURN false;
  END IF;
  UPDATE accounts SET posted_nano = greatest(posted_nano - v_budget, 0), sequence = sequence + 1
  WHERE id IN (p_day_account, p_month_account) AND key_id = v_charge.key_id;
  UPDATE accounts SET credit_nano = credit_nano + v_amount, sequence = sequence + 1
  WHERE id = 'org:' || v_charge.organization_id
  RETURNING * INTO v_account;
  INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
    description, key_id, refunded_request_id, budget_nano)
  VALUES (v_charge.organization_id, v_account.sequence, p_transaction, 'refund', v_amount,
    v_account.credit_nano - v_account.posted_nano, p_description, v_charge.key_id, p_request,
    -v_charge.budget_nano);
  INSERT INTO charge_refunds (transaction_id, organization_id, refunded_nano)
  VALUES (v_charge.id, v_charge.organization_id, -v_charge.amount_nano)
  ON CONFLICT (transaction_id) DO UPDATE SET refunded_nano = EXCLUDED.refunded_nano;
  INSERT INTO changes (kind, object_id)
  VALUES ('organization', v_charge.organization_id), ('api-key', v_charge.key_id);
  PERFORM pg_notify('gateway_changes', 'organization ' || v_charge.organization_id);
  PERFORM pg_notify('gateway_changes', 'api-key ' || v_charge.key_id);
  RETURN true;
END
$$;--> statement-breakpoint
-- What the previous release calls, which may end the holds of instances of this one that died: as in 0012, with
-- what these hold and count of budgets.
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
  v_budget bigint;
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
    RETURNING e.n, e.o, e.d, e.m, holds.hold_nano AS nano,
      coalesce(holds.budget_nano, holds.hold_nano) AS budget
  LOOP
    v_held[h.n] := h.nano;
    v_moved[h.o] := v_moved[h.o] - h.nano;
    v_moved[h.d] := v_moved[h.d] - h.budget;
    v_moved[h.m] := v_moved[h.m] - h.budget;
    v_free[h.o] := v_free[h.o] + h.nano;
    v_free[h.d] := v_free[h.d] + h.budget;
    v_free[h.m] := v_free[h.m] + h.budget;
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
    v_budget := coalesce(ledger_reaped_budget(p_batch, h.r), h.c);
    v_charged[h.o] := v_charged[h.o] + h.c;
    v_charged[h.d] := v_charged[h.d] + v_budget;
    v_charged[h.m] := v_charged[h.m] + v_budget;
    v_count[h.o] := v_count[h.o] + 1;
    v_count[h.d] := v_count[h.d] + 1;
    v_count[h.m] := v_count[h.m] + 1;
    v_unspent[h.o] := v_unspent[h.o] - h.c;
    v_unspent[h.d] := v_unspent[h.d] - v_budget;
    v_unspent[h.m] := v_unspent[h.m] - v_budget;
    v_free[h.o] := v_free[h.o] - h.c;
    v_free[h.d] := v_free[h.d] - v_budget;
    v_free[h.m] := v_free[h.m] - v_budget;
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
      completion_tokens, reasoning_tokens, estimated, latency_ms, details, budget_nano)
    SELECT g.organization_id, v_sequence[g.o] + row_number() OVER w, 'txn_' || substr(s.r, 5), 'usage',
      -s.c, v_balance[g.o] - sum(s.c) OVER w, g.description, g.key_id, s.r, g.model, g.provider, g.status,
      s.p, coalesce(s.cp, 0), s.o, coalesce(s.ro, 0), g.estimated, s.l, s.d,
      ledger_reaped_budget(p_batch, s.r)
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
