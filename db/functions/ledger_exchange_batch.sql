-- Commits one ledger batch of an instance that shares the database with others, in one statement and one round trip:
-- ends holds, posts their charges, decides new holds and extensions, and stores checkpoints. Members of p_batch:
--   account_ids   the accounts of the batch. Rows name them by their positions in it, from 1: accounts is
--                 [organization, day, month, accounts of the budgets of the end user and tags …]; the account of
--                 a group is the organization's
--   ended         holds that end; with charge_nano if they are charged and not released
--   holds         requested holds, in order. full_nano is granted if every account has that much available; else,
--                 if least_nano is available, it grants the available amount up to most_nano. With is_last a row
--                 does not wait for blocked rows before it, and blocks none after it. With extends it raises a
--                 hold of this instance to full_nano, unless an earlier try has done so
--   subjects      true if a row has accounts of end users or tags
--   recheck       true if an earlier try may have written a part. That try is over; its holds are among ended
--   reaping       true if the ended holds are those of dead instances, single-node ones included
--   settlements, groups, new_accounts, attempts, checkpoints   as in ledger_settle_batch
-- budget_nano of ended and settlements, and budget_full_nano, budget_least_nano and budget_most_nano of holds, are the
-- amounts for the budgets of the key, end user and tags. They are present only if they differ from the amounts for the
-- organization: budgets may count calls that the organization's own provider keys serve.
--
-- Returns a verdict for each hold that was not granted full_nano. It is held_nano and budget_nano of a lowered hold; or
-- blocked, 'key' if the row waits for a row that waits for a balance or a key, 'subject' if only for an end user or
-- tag; or is_active, which is not true; or gone; or limit, unspent and available amounts of each account, as texts.
--
-- Reads its rows by index whatever the statistics say: see ledger_settle_batch. Called by exchangeLedgerBatch in
-- db/ledger/exchange-batch.ts.
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

  -- The statements below read under the locks. No other writer changes these totals until this batch ends, and a
  -- budget that is read here is in force while the holds below are admitted.
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
      -- A deleted budget has no limit.
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
    -- A hold ends here only if its accounts are the locked ones.
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
    -- A single-node gateway holds money in memory. After its death the attempt shows the held amount.
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
      RAISE EXCEPTION 'a charge is larger than its hold' USING ERRCODE = 'GW002';
    END IF;
    FOREACH v_at IN ARRAY h.accounts LOOP
      -- A charge without its accounts must fail. It must not be lost.
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
    -- Without a limit, the largest bigint is available. An extended hold may use its own amount again.
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
      -- A later row that needs the same amount waits for this one. No row waits for an amount that is spent.
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
      budget_nano, fee_nano)
    SELECT g.organization_id, v_sequence[g.account] + row_number() OVER w, 'txn_' || substr(s.request_id, 5),
      'usage', -s.charge_nano, v_balance[g.account] - sum(s.charge_nano) OVER w, g.description, g.key_id,
      s.request_id, g.model, g.provider, g.status, s.prompt_tokens, coalesce(s.cached_prompt_tokens, 0),
      s.completion_tokens, coalesce(s.reasoning_tokens, 0), s.quantities, g.estimated, s.latency_ms, s.details,
      coalesce(s.budget_nano, ledger_reaped_budget(p_batch, s.request_id)), s.fee_nano
    FROM jsonb_to_recordset(p_batch->'settlements') AS s (position integer, "group" integer,
      request_id text, charge_nano bigint, prompt_tokens bigint, cached_prompt_tokens bigint,
      completion_tokens bigint, reasoning_tokens bigint, quantities jsonb, latency_ms integer, details jsonb,
      budget_nano bigint, fee_nano bigint)
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
$$;
