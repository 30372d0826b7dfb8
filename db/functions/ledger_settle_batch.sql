-- Commits one ledger batch of a single-node gateway in one statement: one round trip and one commit. A typical batch
-- has a few charges of one organization, and its statements cost more than its rows. So the sender computes the sums,
-- and one step reads and changes the totals. Members of p_batch:
--   accounts       each account that a charge touches, once: its position in the batch from 1, the sum of its
--                  charges, and the number of transactions that an organization gets
--   settlements    position is the number of the charge among those of the organization from 1, sum_nano the sum
--                  of these charges up to it; budget_nano is the amount that budgets count, if it differs
--   groups         what many settlements have in common (key, model …), sent once
--   new_accounts   periods that may not have a row yet
--   attempts       requests whose rows in attempts are deleted
--   checkpoints    as in ledger_keep_checkpoints
--   recheck        true if an earlier try or another writer may have posted a part. If it has, nothing is written,
--                  the result is null, and the sender looks up the posted charges
-- Returns credit_nano, posted_nano and sequence of each account, one account after the other, as texts in JSON: the
-- driver reads an array only after it has loaded the types of its server.
--
-- The batch functions of the ledger have plans that do not depend on statistics. The condition `id = ANY (array)` is
-- looked up in the index of ids, and a lateral subquery with LIMIT runs for each row of the batch. A plain join that
-- was planned for few rows may read all accounts, holds, attempts or transactions.
--
-- Called by commitLedgerBatch in db/ledger/settle-batch.ts.
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
    -- Reads under the locks, so that it sees charges of a writer that was still running.
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
    -- A charge without its accounts must fail. It must not be lost.
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
      IF a.budget_id IS NULL THEN
        SELECT CASE a.kind WHEN 'day' THEN daily_budget_nano ELSE monthly_budget_nano END INTO v_budget
        FROM api_keys WHERE id = a.key_id;
      ELSE
        SELECT CASE a.kind WHEN 'subject_day' THEN daily_budget_nano ELSE monthly_budget_nano END INTO v_budget
        FROM subject_budgets WHERE id = a.budget_id;
      END IF;
      IF a.posted_nano >= v_budget - v_budget / 2 THEN
        v_near := v_near || a.id;
      END IF;
    END IF;
  END LOOP;

  IF p_batch ? 'settlements' THEN
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, request_id, model, provider, status, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, quantities, estimated, latency_ms, details,
      budget_nano, fee_nano)
    SELECT g.organization_id, v_sequence[g.account] + s.position, 'txn_' || substr(s.request_id, 5), 'usage',
      -s.charge_nano, v_balance[g.account] - s.sum_nano, g.description, g.key_id, s.request_id, g.model,
      g.provider, g.status, s.prompt_tokens, coalesce(s.cached_prompt_tokens, 0), s.completion_tokens,
      coalesce(s.reasoning_tokens, 0), s.quantities, g.estimated, s.latency_ms, s.details,
      s.budget_nano, s.fee_nano
    FROM jsonb_to_recordset(p_batch->'settlements') AS s (position bigint, "group" integer,
      request_id text, charge_nano bigint, sum_nano bigint, prompt_tokens bigint,
      cached_prompt_tokens bigint, completion_tokens bigint, reasoning_tokens bigint, quantities jsonb,
      latency_ms integer, details jsonb, budget_nano bigint, fee_nano bigint)
    JOIN jsonb_to_recordset(p_batch->'groups') AS g ("group" integer, account integer,
      organization_id text, key_id text, model text, provider text, status integer, estimated boolean,
      description text)
      ON g."group" = s."group";
  END IF;

  IF p_batch ? 'attempts' THEN
    DELETE FROM attempts
    WHERE request_id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_batch->'attempts')));
  END IF;
  -- Below 50 % of a budget there is no event to emit.
  IF cardinality(v_near) > 0 THEN
    PERFORM emit_budget_events(v_near, false);
  END IF;
  RETURN to_jsonb(v_totals);
END
$$;
