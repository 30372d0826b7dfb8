-- One batch of the ledger of a gateway that is alone, in one statement, so that it costs one round trip and
-- commits as a whole. It is plain on purpose: a batch mostly has a few charges of one organization, and what
-- it costs is its statements and the reading of what it is given. So its sender has reckoned the sums, and
-- most of it comes in arrays, which are read several times faster than JSON.
--
-- p_accounts: each account that a charge touches, once; p_sums: for each of them two numbers, what is charged
-- to it, and how many transactions an organization gets.
-- p_requests: the requests that are charged. p_figures: for each of them, its group, its place among the
-- charges of its organization, from 1, its charge, the sum of these charges up to it, its prompt, cached
-- prompt, completion and reasoning tokens, and its latency. p_details: for each of them, or null for all.
-- p_groups: what many have in common, sent once: organization, key, model, provider, description; and
-- p_group_figures: the organization's place in p_accounts, the status, and 1 where tokens are estimated.
-- p_rare, null in most batches: new_accounts, key periods that may not have a row yet; checkpoints;
-- attempts, requests whose rows end; recheck: one that seemed to have failed, or another writer, may have
-- posted some of it. Where that is so, nothing is charged or kept and null returned, and whoever sends it
-- looks again.
-- Returns credit_nano, posted_nano and sequence of each account, one after the other, between spaces: the
-- driver reads an array only where it has loaded the types of its server.
--
-- ledger_settle, which it follows, stays for a gateway of the version before that may still run.
CREATE FUNCTION ledger_charge(
  p_instance text, p_epoch bigint, p_accounts text[], p_sums bigint[], p_requests text[], p_figures bigint[],
  p_details text[], p_groups text[], p_group_figures bigint[], p_rare jsonb
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  v_sequence bigint[];
  v_balance bigint[];
  v_totals bigint[] := '{}';
  v_near text[] := '{}';
  v_found integer := 0;
  a record;
BEGIN
  -- The fence. It must be a locking read of its own: a condition inside another statement would be
  -- judged by that statement's old snapshot after a wait. A key share conflicts with the FOR UPDATE of
  -- whoever declares the instance dead, and not with its heartbeats.
  PERFORM 1 FROM instances WHERE id = p_instance AND epoch = p_epoch AND alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'instance % was declared dead', p_instance USING ERRCODE = 'GW001';
  END IF;

  IF p_rare ? 'new_accounts' THEN
    INSERT INTO accounts (id, kind, organization_id, key_id, period_start)
    SELECT n.id, n.kind, n.organization_id, n.key_id, n.period_start
    FROM jsonb_to_recordset(p_rare->'new_accounts')
      AS n (id text, kind text, organization_id text, key_id text, period_start date)
    ORDER BY n.id
    ON CONFLICT (id) DO NOTHING;
  END IF;

  IF p_rare ? 'recheck' AND cardinality(p_requests) > 0 THEN
    PERFORM 1 FROM accounts WHERE id = ANY (p_accounts) ORDER BY id FOR UPDATE;
    -- Behind the locks: what a writer that still ran has posted is seen.
    PERFORM 1 FROM transactions WHERE request_id = ANY (p_requests);
    IF FOUND THEN
      RETURN NULL;
    END IF;
  END IF;

  IF p_rare ? 'checkpoints' THEN
    INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
      day_account, month_account, hold_nano, charge_nano, model, provider, prompt_tokens,
      completion_tokens, estimated, latency_ms, details, started_at)
    SELECT c.request_id, p_instance, p_epoch, c.organization_id, c.key_id, c.org_account, c.day_account,
      c.month_account, c.hold_nano, c.charge_nano, c.model, c.provider, c.prompt_tokens,
      c.completion_tokens, c.estimated, c.latency_ms, c.details, c.started_at
    FROM jsonb_to_recordset(p_rare->'checkpoints') AS c (request_id text, organization_id text,
      key_id text, org_account text, day_account text, month_account text, hold_nano bigint,
      charge_nano bigint, model text, provider text, prompt_tokens bigint, completion_tokens bigint,
      estimated boolean, latency_ms integer, details jsonb, started_at timestamptz)
    ON CONFLICT (request_id) DO UPDATE SET charge_nano = EXCLUDED.charge_nano,
      completion_tokens = EXCLUDED.completion_tokens, prompt_tokens = EXCLUDED.prompt_tokens,
      latency_ms = EXCLUDED.latency_ms;
  END IF;

  IF cardinality(p_accounts) = 0 THEN
    RETURN '';
  END IF;
  -- By the index, one after the other in the order of ids: batches that lock so cannot deadlock.
  FOR a IN
    UPDATE accounts SET posted_nano = posted_nano + p_sums[2 * array_position(p_accounts, id) - 1],
      sequence = sequence + CASE kind WHEN 'org' THEN p_sums[2 * array_position(p_accounts, id)] ELSE 0 END,
      last_used_at = CASE kind WHEN 'org' THEN last_used_at ELSE clock_timestamp() END
    WHERE id = ANY (p_accounts)
    RETURNING array_position(p_accounts, id) AS n, id, kind, credit_nano, posted_nano, sequence,
      CASE WHEN budget_events < 7 THEN
        CASE kind
          WHEN 'day' THEN (SELECT daily_budget_nano FROM api_keys WHERE api_keys.id = key_id)
          WHEN 'month' THEN (SELECT monthly_budget_nano FROM api_keys WHERE api_keys.id = key_id)
        END
      END AS budget
  LOOP
    v_found := v_found + 1;
    v_totals[3 * a.n - 2] := a.credit_nano;
    v_totals[3 * a.n - 1] := a.posted_nano;
    v_totals[3 * a.n] := a.sequence;
    IF a.kind = 'org' THEN
      v_sequence[a.n] := a.sequence - p_sums[2 * a.n];
      v_balance[a.n] := a.credit_nano - a.posted_nano + p_sums[2 * a.n - 1];
    ELSIF a.posted_nano >= a.budget - a.budget / 2 THEN
      v_near := v_near || a.id;
    END IF;
  END LOOP;
  -- Without its accounts a charge must fail, not vanish.
  IF v_found < cardinality(p_accounts) THEN
    RAISE EXCEPTION 'a charge without its account' USING ERRCODE = 'not_null_violation';
  END IF;

  IF cardinality(p_requests) > 0 THEN
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, request_id, model, provider, status, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, estimated, latency_ms, details)
    SELECT p_groups[5 * g - 4], v_sequence[o] + p_figures[i + 2], 'txn_' || substr(r, 5), 'usage',
      -p_figures[i + 3], v_balance[o] - p_figures[i + 4], p_groups[5 * g], p_groups[5 * g - 3], r,
      p_groups[5 * g - 2], p_groups[5 * g - 1], p_group_figures[3 * g - 1]::integer, p_figures[i + 5],
      p_figures[i + 6], p_figures[i + 7], p_figures[i + 8], p_group_figures[3 * g] = 1,
      p_figures[i + 9]::integer, p_details[n]::jsonb
    FROM unnest(p_requests) WITH ORDINALITY AS s (r, n),
      LATERAL (SELECT 9 * (n - 1) AS i, p_figures[9 * n - 8] AS g) at,
      LATERAL (SELECT p_group_figures[3 * g - 2] AS o) account;
  END IF;

  IF p_rare ? 'attempts' THEN
    DELETE FROM attempts WHERE request_id IN (SELECT jsonb_array_elements_text(p_rare->'attempts'));
  END IF;
  -- Below half a budget there is nothing to tell.
  IF cardinality(v_near) > 0 THEN
    PERFORM emit_budget_events(v_near, false);
  END IF;
  RETURN array_to_string(v_totals, ' ');
END
$$;
