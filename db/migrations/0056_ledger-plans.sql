-- The ledger's functions, with plans that do not depend on statistics, as those of deliveries in 0055. Nothing else
-- changes, except that budget_events has a further bit (0057). A batch reads the rows that it names: the condition
-- `id = ANY (array)` is looked up in the index of ids, in whatever order the tables are joined, and a lateral subquery
-- with LIMIT runs for each row of the batch. A plain join that was planned when there were few rows may read all
-- accounts, holds, attempts or transactions.
--
-- As in 0019.
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
    WHERE id = ANY (ARRAY(SELECT charged.id FROM jsonb_to_recordset(p_batch->'accounts') AS charged (id text)))
    ORDER BY id FOR UPDATE;
    -- Behind the locks: what a writer that still ran has posted is seen.
    PERFORM 1 FROM transactions
    WHERE request_id = ANY (ARRAY(
      SELECT s.request_id FROM jsonb_to_recordset(p_batch->'settlements') AS s (request_id text)));
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
    ELSIF a.budget_events & 7 < 7 THEN
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
    DELETE FROM attempts
    WHERE request_id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_batch->'attempts')));
  END IF;
  -- Below half a budget there is no event to emit.
  IF cardinality(v_near) > 0 THEN
    PERFORM emit_budget_events(v_near, false);
  END IF;
  RETURN to_jsonb(v_totals);
END
$$;--> statement-breakpoint
-- As in 0038.
CREATE OR REPLACE FUNCTION ledger_move_subjects(p_accounts jsonb, p_org_account text, p_held bigint, p_posted bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  -- A single-node gateway makes the accounts of a request with its charge.
  INSERT INTO accounts (id, kind, organization_id, budget_id, period_start)
  SELECT s.id, split_part(s.id, ':', 1), split_part(p_org_account, ':', 2), split_part(s.id, ':', 2),
    split_part(s.id, ':', 3)::date
  FROM jsonb_array_elements_text(p_accounts) AS s (id) ORDER BY s.id
  ON CONFLICT (id) DO NOTHING;
  PERFORM 1 FROM accounts WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_accounts))) ORDER BY id FOR UPDATE;
  UPDATE accounts SET held_nano = held_nano + p_held, posted_nano = posted_nano + p_posted
  WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_accounts)));
END
$$;--> statement-breakpoint
-- As in 0038.
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
  v_subjects integer[];
  v_unnamed jsonb[];
  v_accounts jsonb;
  v_is_behind boolean;
  v_is_only_held boolean;
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
      SELECT t.request_id FROM transactions t WHERE t.request_id = ANY (ARRAY(
        SELECT s.request_id FROM jsonb_to_recordset(p_batch->'settlements') AS s (request_id text))));
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
    LEFT JOIN LATERAL (SELECT * FROM accounts WHERE accounts.id = i.id LIMIT 1) a ON true
    LEFT JOIN LATERAL (
      SELECT * FROM api_keys WHERE api_keys.id = a.key_id AND deleted_at IS NULL LIMIT 1) k ON true
    ORDER BY i.place
  ) of_each;
  IF p_batch ? 'subjects' THEN
    FOR h IN
      SELECT i.place::integer AS place, a.posted_nano, a.held_nano,
        CASE a.kind WHEN 'subject_day' THEN b.daily_budget_nano ELSE b.monthly_budget_nano END AS limit_nano
      FROM unnest(v_ids) WITH ORDINALITY AS i (id, place)
      CROSS JOIN LATERAL (
        SELECT * FROM accounts WHERE accounts.id = i.id AND budget_id IS NOT NULL LIMIT 1) a
      -- A budget that was deleted binds nothing more.
      LEFT JOIN LATERAL (SELECT * FROM subject_budgets WHERE subject_budgets.id = a.budget_id LIMIT 1) b ON true
    LOOP
      v_limit[h.place] := h.limit_nano;
      v_unspent[h.place] := h.limit_nano - h.posted_nano;
      v_free[h.place] := h.limit_nano - h.posted_nano - h.held_nano;
    END LOOP;
  END IF;

  FOR h IN
    DELETE FROM holds USING jsonb_to_recordset(p_batch->'ended')
      AS e (position integer, request_id text, accounts integer[])
    -- The accounts are those that were locked, or the hold does not end here.
    WHERE holds.id = e.request_id AND holds.id = ANY (ARRAY(
        SELECT ended.request_id FROM jsonb_to_recordset(p_batch->'ended') AS ended (request_id text)))
      AND holds.org_account = v_ids[e.accounts[1]]
      AND holds.day_account = v_ids[e.accounts[2]] AND holds.month_account = v_ids[e.accounts[3]]
    RETURNING e.position, e.accounts, holds.hold_nano,
      coalesce(holds.budget_nano, holds.hold_nano) AS budget_nano, holds.subject_accounts
  LOOP
    v_ended_nano[h.position] := h.hold_nano;
    v_ended_budget[h.position] := h.budget_nano;
    IF h.subject_accounts IS NOT NULL AND cardinality(h.accounts) = 3 THEN
      v_unnamed[h.position] := h.subject_accounts;
      PERFORM ledger_move_subjects(h.subject_accounts, v_ids[h.accounts[1]], -h.budget_nano, 0);
    END IF;
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
      SELECT a.hold_nano, coalesce(a.budget_hold_nano, a.hold_nano),
        CASE cardinality(h.accounts) WHEN 3 THEN a.subject_accounts END
      INTO v_size, v_budget, v_accounts
      FROM attempts a JOIN instances i ON i.id = a.instance_id AND i.epoch = a.epoch
      WHERE a.request_id = h.request_id AND i.is_alone;
      v_ended_nano[h.position] := v_size;
      v_ended_budget[h.position] := v_budget;
      v_unnamed[h.position] := v_accounts;
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
    IF v_unnamed[h.position] IS NOT NULL THEN
      PERFORM ledger_move_subjects(v_unnamed[h.position], v_ids[h.accounts[1]], 0, v_budget);
    END IF;
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
    v_of_budget := least(v_free[h.day], v_free[h.month]);
    v_is_behind := (v_blocked[h.org] AND h.full_nano > 0) OR v_blocked[h.day];
    v_subjects := CASE WHEN cardinality(h.accounts) > 3 THEN h.accounts[4:] ELSE '{}' END;
    FOREACH v_at IN ARRAY v_subjects LOOP
      v_of_budget := least(v_of_budget, v_free[v_at]);
      v_is_behind := v_is_behind OR v_blocked[v_at];
    END LOOP;
    v_of_budget := coalesce(v_of_budget + v_budget_before, 9223372036854775807);
    IF v_before IS NULL THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'gone', true);
    ELSIF v_active[h.day] IS NOT TRUE THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'is_active', v_active[h.day]);
    ELSIF h.is_last IS NOT TRUE AND v_is_behind THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'blocked',
        CASE WHEN v_blocked[h.org] OR v_blocked[h.day] THEN 'key' ELSE 'subject' END);
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
      v_verdicts := v_verdicts || (jsonb_build_object('request_id', h.request_id, 'is_active', true,
        'organization', jsonb_build_array(v_limit[h.org]::text, v_unspent[h.org]::text, v_free[h.org]::text),
        'day', jsonb_build_array(v_limit[h.day]::text, v_unspent[h.day]::text, v_free[h.day]::text),
        'month', jsonb_build_array(v_limit[h.month]::text, v_unspent[h.month]::text, v_free[h.month]::text))
        || CASE cardinality(v_subjects) WHEN 0 THEN '{}' ELSE jsonb_build_object('subjects', (
          SELECT jsonb_agg(jsonb_build_array(v_limit[s.at]::text, v_unspent[s.at]::text, v_free[s.at]::text)
            ORDER BY s.place)
          FROM unnest(v_subjects) WITH ORDINALITY AS s (at, place))) END);
      -- A later row that needs what this one waits for stands behind it; no row waits for what is spent.
      v_is_only_held := h.least_nano <= coalesce(v_unspent[h.org], h.least_nano)
        AND h.budget_least <= coalesce(v_unspent[h.day], h.budget_least)
        AND h.budget_least <= coalesce(v_unspent[h.month], h.budget_least);
      FOREACH v_at IN ARRAY v_subjects LOOP
        v_is_only_held := v_is_only_held AND h.budget_least <= coalesce(v_unspent[v_at], h.budget_least);
      END LOOP;
      IF h.is_last IS NOT TRUE AND v_is_only_held THEN
        IF h.least_nano > v_free[h.org] THEN
          v_blocked[h.org] := true;
        ELSIF cardinality(v_subjects) = 0 OR h.budget_least > least(v_free[h.day], v_free[h.month]) THEN
          v_blocked[h.day] := true;
        ELSE
          FOREACH v_at IN ARRAY v_subjects LOOP
            IF h.budget_least > v_free[v_at] THEN
              v_blocked[v_at] := true;
            END IF;
          END LOOP;
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
    INSERT INTO holds (id, instance_id, epoch, org_account, day_account, month_account, subject_accounts,
      hold_nano, budget_nano)
    SELECT g.id, v_instance, v_epoch, v_ids[d.accounts[1]], v_ids[d.accounts[2]], v_ids[d.accounts[3]],
      CASE WHEN cardinality(d.accounts) > 3 THEN (
        SELECT jsonb_agg(v_ids[s.at] ORDER BY s.place)
        FROM unnest(d.accounts[4:]) WITH ORDINALITY AS s (at, place)) END,
      g.nano, g.budget
    FROM unnest(v_granted, v_granted_nano, v_granted_budget) AS g (id, nano, budget)
    JOIN jsonb_to_recordset(p_batch->'holds') AS d (request_id text, accounts integer[])
      ON d.request_id = g.id;
  END IF;

  UPDATE accounts a SET posted_nano = a.posted_nano + u.charged, held_nano = a.held_nano + u.moved,
    sequence = a.sequence + CASE a.kind WHEN 'org' THEN u.count ELSE 0 END,
    last_used_at = CASE WHEN u.count > 0 AND a.kind <> 'org' THEN clock_timestamp() ELSE a.last_used_at END
  FROM unnest(v_ids, v_charged, v_moved, v_count) AS u (id, charged, moved, count)
  WHERE a.id = u.id AND a.id = ANY (v_ids) AND (u.count > 0 OR u.moved <> 0);

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
    DELETE FROM attempts
    WHERE request_id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_batch->'attempts')));
  END IF;
  RETURN to_jsonb(v_verdicts);
END
$$;--> statement-breakpoint
-- As in 0029.
CREATE OR REPLACE FUNCTION keep_responses(p_kept jsonb, p_removed_after interval) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE responses r SET is_kept = true, own_bytes = k.own_bytes, chain_bytes = k.chain_bytes,
    created_at = clock_timestamp(), remove_after = clock_timestamp() + p_removed_after
  FROM jsonb_to_recordset(p_kept) AS k (id text, own_bytes integer, chain_bytes bigint)
  WHERE r.id = k.id AND r.id = ANY (ARRAY(SELECT one.id FROM jsonb_to_recordset(p_kept) AS one (id text)));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count < jsonb_array_length(p_kept) THEN
    RAISE EXCEPTION 'a response is not there to be kept' USING ERRCODE = 'GW004';
  END IF;
  -- In one order everywhere, so that two transactions never wait for one another.
  PERFORM append_to_conversation(k.id, k.conversation_id)
  FROM (SELECT id, conversation_id FROM jsonb_to_recordset(p_kept) AS k (id text, conversation_id text)
    WHERE conversation_id IS NOT NULL ORDER BY conversation_id, id) AS k;
  RETURN v_count;
END
$$;--> statement-breakpoint
-- As in 0053.
CREATE OR REPLACE FUNCTION claim_leases(
  p_kind text, p_ids text[], p_instance text, p_instance_epoch bigint, p_judges boolean
)
RETURNS TABLE (id text, epoch bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_locked text[];
  v_knows boolean;
  v_id text;
BEGIN
  -- A key share: the reaper's FOR UPDATE waits for it, and it for that, but no heartbeat does.
  SELECT i.knows_provider_batches INTO v_knows FROM instances i
  WHERE i.id = p_instance AND i.epoch = p_instance_epoch AND i.alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  INSERT INTO actor_leases (kind, id, epoch)
  SELECT DISTINCT p_kind, wanted, 0 FROM unnest(p_ids) AS wanted ORDER BY wanted
  ON CONFLICT ON CONSTRAINT actor_leases_kind_id_pk DO NOTHING;
  v_locked := ARRAY(
    SELECT locked.id FROM (SELECT DISTINCT wanted FROM unnest(p_ids) AS wanted ORDER BY wanted) w
    CROSS JOIN LATERAL (
      SELECT l.id FROM actor_leases l WHERE l.kind = p_kind AND l.id = w.wanted
      LIMIT 1 FOR UPDATE SKIP LOCKED) locked);
  -- Statements of their own, whose snapshots are younger than the locks. One for each id: before version 17, Postgres may
  -- read all leases of a kind for an array of ids.
  FOREACH v_id IN ARRAY v_locked LOOP
    RETURN QUERY
    UPDATE actor_leases l
    SET instance_id = p_instance, instance_epoch = p_instance_epoch, epoch = l.epoch + 1
    WHERE l.kind = p_kind AND l.id = v_id
      AND (l.instance_id = p_instance OR NOT EXISTS (
        SELECT 1 FROM instances i WHERE i.id = l.instance_id AND i.epoch = l.instance_epoch AND i.alive
          AND (NOT p_judges OR i.heartbeat_at > clock_timestamp() - instance_lease())))
      AND (v_knows OR p_kind <> 'batch' OR NOT EXISTS (
        SELECT 1 FROM provider_batches p WHERE p.batch_id = l.id))
    RETURNING l.id, l.epoch;
  END LOOP;
END
$$;--> statement-breakpoint
-- As in 0049.
CREATE OR REPLACE FUNCTION usage_roll_up(p_organization text, p_most integer) RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
  v_cursor usage_cursors;
  v_last bigint;
  v_failures bigint;
  v_new_subjects bigint;
  v_days date[];
  v_due text[];
BEGIN
  SELECT * INTO v_cursor FROM usage_cursors WHERE organization_id = p_organization FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO usage_cursors (organization_id) VALUES (p_organization) ON CONFLICT DO NOTHING;
    SELECT * INTO v_cursor FROM usage_cursors WHERE organization_id = p_organization FOR UPDATE;
  END IF;
  SELECT max(sequence) INTO v_last FROM transactions
  WHERE organization_id = p_organization AND sequence > v_cursor.sequence
    AND sequence <= v_cursor.sequence + p_most;
  IF v_last IS NULL AND NOT EXISTS (
    SELECT FROM failed_requests WHERE organization_id = p_organization AND usage_state = 0)
  THEN
    RETURN false;
  END IF;
  v_last := coalesce(v_last, v_cursor.sequence);
  v_due := ARRAY(
    SELECT id FROM failed_requests WHERE organization_id = p_organization AND usage_state = 0 LIMIT p_most);

  WITH failed AS (
    UPDATE failed_requests f SET usage_state = CASE WHEN t.id IS NULL THEN 1 ELSE 2 END
    FROM unnest(v_due) AS due (id)
    LEFT JOIN LATERAL (
      SELECT * FROM transactions WHERE request_id = due.id AND transactions.type = 'usage' LIMIT 1) t ON true
    WHERE f.id = due.id AND f.id = ANY (v_due)
    RETURNING f.id, f.created_at, f.key_id, f.model, f.provider, f.status, f.user_name, f.tags,
      t.created_at AS charged_at, t.key_id AS charged_key_id, t.model AS charged_model,
      t.provider AS charged_provider, t.status AS charged_status, t.details
  ), lines AS (
    SELECT date_bin('1 hour', t.created_at, 'epoch') AS hour, t.key_id, t.model, t.provider,
      t.details->>'user' AS user_name, t.details->'metadata'->'tags' AS tags,
      CASE WHEN f.id IS NULL THEN 1 ELSE 0 END AS requests,
      CASE WHEN f.id IS NULL AND t.status >= 400 THEN 1 ELSE 0 END AS errors,
      least(coalesce(t.prompt_tokens, 0), 1000000000000) AS prompt_tokens,
      least(coalesce(t.completion_tokens, 0), 1000000000000) AS completion_tokens,
      least(coalesce(t.cached_prompt_tokens, 0), 1000000000000) AS cached_tokens,
      least(coalesce(t.reasoning_tokens, 0), 1000000000000) AS reasoning_tokens,
      CASE WHEN t.quantities IS NOT NULL THEN usage_quantity(t.quantities, 'images') END AS images,
      CASE WHEN t.quantities IS NOT NULL THEN usage_quantity(t.quantities, 'characters') END AS characters,
      CASE WHEN t.quantities IS NOT NULL THEN usage_quantity(t.quantities, 'duration_ms') END AS duration_ms,
      CASE WHEN t.quantities IS NOT NULL THEN usage_quantity(t.quantities, 'search_units') END AS search_units,
      -t.amount_nano AS cost_nano
    FROM transactions t
    LEFT JOIN LATERAL (
      SELECT * FROM failed_requests WHERE failed_requests.id = t.request_id AND usage_state = 1 LIMIT 1) f ON true
    WHERE t.organization_id = p_organization AND t.sequence > v_cursor.sequence AND t.sequence <= v_last
      AND t.type = 'usage'
    UNION ALL
    SELECT date_bin('1 hour', c.created_at, 'epoch'), c.key_id, c.model, c.provider, c.details->>'user',
      c.details->'metadata'->'tags', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -t.amount_nano
    FROM transactions t
    CROSS JOIN LATERAL (SELECT * FROM transactions WHERE request_id = t.refunded_request_id LIMIT 1) c
    WHERE t.organization_id = p_organization AND t.sequence > v_cursor.sequence AND t.sequence <= v_last
      AND t.type = 'refund'
    UNION ALL
    -- What was refused before its model was found has any text for one.
    SELECT date_bin('1 hour', created_at, 'epoch'), key_id,
      CASE WHEN provider IS NOT NULL OR status NOT IN (400, 404, 413, 415) THEN model END, provider, user_name,
      tags, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    FROM failed WHERE charged_at IS NULL
    UNION ALL
    SELECT date_bin('1 hour', charged_at, 'epoch'), charged_key_id, charged_model, charged_provider,
      details->>'user', details->'metadata'->'tags', 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    FROM failed WHERE charged_at IS NOT NULL AND (charged_status >= 400) IS NOT TRUE
  ), sums AS MATERIALIZED (
    SELECT hour, coalesce(key_id, '') AS key_id, usage_name(model) AS model,
      usage_name(provider) AS provider, usage_name(user_name) AS user_name, tags, requests, errors,
      prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens,
      coalesce(images, 0) AS images, coalesce(characters, 0) AS characters,
      coalesce(duration_ms, 0) AS duration_ms, coalesce(search_units, 0) AS search_units, cost_nano
    FROM (
      SELECT hour, key_id, model, provider, user_name, tags, sum(requests) AS requests,
        sum(errors) AS errors, sum(prompt_tokens) AS prompt_tokens,
        sum(completion_tokens) AS completion_tokens, sum(cached_tokens) AS cached_tokens,
        sum(reasoning_tokens) AS reasoning_tokens, sum(images) AS images, sum(characters) AS characters,
        sum(duration_ms) AS duration_ms, sum(search_units) AS search_units, sum(cost_nano) AS cost_nano
      FROM lines GROUP BY hour, key_id, model, provider, user_name, tags
    ) of_each
  ), rolled AS (
    INSERT INTO usage_rollups AS u (organization_id, grain, key_id, starts_at, model, provider, requests,
      errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
      duration_ms, search_units, cost_nano)
    SELECT p_organization, g.grain, g.key_id, g.starts_at, model, provider, sum(requests), sum(errors),
      sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images),
      sum(characters), sum(duration_ms), sum(search_units), sum(cost_nano)
    FROM sums s CROSS JOIN LATERAL (VALUES
      ('hour', '', s.hour), ('key_hour', s.key_id, s.hour),
      ('day', '', date_trunc('day', s.hour, 'UTC')), ('key_day', s.key_id, date_trunc('day', s.hour, 'UTC'))
    ) AS g (grain, key_id, starts_at)
    GROUP BY g.grain, g.key_id, g.starts_at, model, provider
    ON CONFLICT (organization_id, grain, key_id, starts_at, model, provider) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
      prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
      completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
      cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
      reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens,
      images = u.images + EXCLUDED.images, characters = u.characters + EXCLUDED.characters,
      duration_ms = u.duration_ms + EXCLUDED.duration_ms,
      search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano
  ), subjected AS MATERIALIZED (
    -- Each of the sums once as its user's, and at each of its tags.
    SELECT sums.*, s.kind, s.value
    FROM sums CROSS JOIN LATERAL (
      SELECT 'user' AS kind, user_name AS value
      UNION ALL SELECT 'tag', '' WHERE tags IS NULL
      UNION ALL SELECT 'tag', tag FROM usage_tags(tags) AS tag WHERE tags IS NOT NULL
    ) s
  ), subjects AS (
    INSERT INTO usage_subjects AS u (organization_id, kind, day, value, key_id, model, provider, requests,
      errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
      duration_ms, search_units, cost_nano)
    SELECT p_organization, kind, (hour AT TIME ZONE 'UTC')::date, value, key_id, model, provider,
      sum(requests), sum(errors), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
      sum(reasoning_tokens), sum(images), sum(characters), sum(duration_ms),
      sum(search_units), sum(cost_nano)
    FROM subjected
    GROUP BY kind, (hour AT TIME ZONE 'UTC')::date, value, key_id, model, provider
    ON CONFLICT (organization_id, kind, day, value, key_id, model, provider) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
      prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
      completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
      cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
      reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens,
      images = u.images + EXCLUDED.images, characters = u.characters + EXCLUDED.characters,
      duration_ms = u.duration_ms + EXCLUDED.duration_ms,
      search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano
    -- Of a row that was there before, the transaction that locked it.
    RETURNING u.xmax = 0 AS is_new
  ), totals AS (
    INSERT INTO usage_totals AS u (organization_id, kind, starts_at, value, requests, errors, prompt_tokens,
      completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms, search_units, cost_nano)
    SELECT p_organization, g.kind, g.starts_at, g.value, sum(requests), sum(errors), sum(prompt_tokens),
      sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images), sum(characters),
      sum(duration_ms), sum(search_units), sum(cost_nano)
    FROM (SELECT *, date_trunc('day', hour, 'UTC') AS day FROM subjected) s CROSS JOIN LATERAL (
      VALUES (s.kind, s.day, s.value), ('hour', s.hour, ''), ('day', s.day, ''), ('key_day', s.day, s.key_id)
    ) AS g (kind, starts_at, value)
    WHERE s.kind = 'user' OR g.kind = 'tag'
    GROUP BY g.kind, g.starts_at, g.value
    ON CONFLICT (organization_id, kind, starts_at, value) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
      prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
      completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
      cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
      reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens,
      images = u.images + EXCLUDED.images, characters = u.characters + EXCLUDED.characters,
      duration_ms = u.duration_ms + EXCLUDED.duration_ms,
      search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano
  ), timed AS (
    INSERT INTO usage_latencies AS u (organization_id, measure, hour, bucket, requests)
    SELECT p_organization, measure, hour, usage_bucket(ms), sum(requests)
    FROM (
      SELECT 'total' AS measure, date_bin('1 hour', created_at, 'epoch') AS hour, latency_ms AS ms,
        count(*) AS requests
      FROM transactions
      WHERE organization_id = p_organization AND sequence > v_cursor.sequence AND sequence <= v_last
        AND type = 'usage' AND status < 400 AND latency_ms IS NOT NULL
      GROUP BY 2, 3
      UNION ALL
      SELECT 'first_token', date_bin('1 hour', created_at, 'epoch'), (details->>'first_token_ms')::integer,
        count(*)
      FROM transactions
      WHERE organization_id = p_organization AND sequence > v_cursor.sequence AND sequence <= v_last
        AND type = 'usage' AND status < 400 AND details ? 'first_token_ms'
      GROUP BY 2, 3
    ) answered
    GROUP BY measure, hour, usage_bucket(ms)
    ON CONFLICT (organization_id, measure, hour, bucket) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests
  )
  SELECT (SELECT count(*) FROM failed), (SELECT count(*) FILTER (WHERE is_new) FROM subjects),
    (SELECT array_agg(DISTINCT (hour AT TIME ZONE 'UTC')::date) FROM sums)
  INTO v_failures, v_new_subjects, v_days;

  v_new_subjects := v_new_subjects + v_cursor.new_subjects;
  IF v_new_subjects >= 1000 THEN
    PERFORM usage_fold_subjects(p_organization, v_days);
    v_new_subjects := 0;
  END IF;
  UPDATE usage_cursors SET sequence = v_last, new_subjects = v_new_subjects, totalled = totalled + 1
  WHERE organization_id = p_organization;
  RETURN v_last = v_cursor.sequence + p_most OR v_failures = p_most;
END
$$;--> statement-breakpoint
-- Functions that look up single rows, and are called over connections that may scan a table: one that was planned for a
-- small table would go on scanning it.
ALTER FUNCTION guard_lease(text, text, bigint, text, bigint)
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off;--> statement-breakpoint
ALTER FUNCTION ledger_post_credit(text, text, text, bigint, text, bigint)
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off;--> statement-breakpoint
ALTER FUNCTION ledger_refund(text, text, text, text, text)
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off;--> statement-breakpoint
ALTER FUNCTION ledger_refund_part(text, text, text, bigint, text)
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off;--> statement-breakpoint
ALTER FUNCTION ledger_refund_subjects(text, jsonb)
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off;
