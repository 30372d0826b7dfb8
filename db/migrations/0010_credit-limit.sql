ALTER TABLE "accounts" ADD COLUMN "credit_limit_nano" bigint DEFAULT 0;--> statement-breakpoint
ALTER TABLE "credit_commands" ADD COLUMN "kind" text DEFAULT 'adjustment' NOT NULL;--> statement-breakpoint
ALTER TABLE "credit_commands" ADD COLUMN "credit_limit_nano" bigint;--> statement-breakpoint
-- As before, and an organization may go down to minus its credit limit; where that is null, without end.
-- A version of the gateway that does not know credit limits works with these functions too.
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
    IF h.c > coalesce(v_held[h.n], 0) AND NOT p_batch ? 'reaping' THEN
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

  IF p_batch ? 'attempts' THEN
    DELETE FROM attempts WHERE request_id IN (SELECT jsonb_array_elements_text(p_batch->'attempts'));
  END IF;
  RETURN jsonb_build_object('free', v_free::text[], 'verdicts', v_verdicts);
END
$$;
--> statement-breakpoint
-- Posts a top-up, refund or adjustment. A negative amount takes at most what is not held, by rows of holds
-- or, beside them, by the caller; the credit limit counts as money that is there.
-- Returns NULL where that would be exceeded or the organization is unknown.
CREATE OR REPLACE FUNCTION ledger_post_credit(
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
    AND (p_amount_nano >= 0 OR credit_limit_nano IS NULL
      OR credit_nano + credit_limit_nano - posted_nano - held_nano - p_held_nano + p_amount_nano >= 0)
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
