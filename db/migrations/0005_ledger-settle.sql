-- One batch of the ledger of a gateway that is alone, in one statement, so that it costs one round trip and
-- commits as a whole. It is plain on purpose: a batch mostly has a few charges of one organization, and what
-- it costs is its statements, not its rows. So its sender has reckoned the sums: it knows them, and the
-- totals that they are added to are read and changed in one step.
--
-- accounts: each account that a charge touches, once: n from 1, id, c what is charged to it, q how many
-- transactions an organization gets.
-- settlements: r the request, g its group (key, model and what else many have in common, sent once), n its
-- place among the charges of its organization, from 1, c its charge, t the sum of these charges up to it.
-- new_accounts: key periods that may not have a row yet. attempts: requests whose rows end.
-- recheck: one that seemed to have failed, or another writer, may have posted some of it. Where that is so,
-- nothing is charged or kept and NULL returned, and whoever sends it looks again.
-- Returns credit_nano, posted_nano and sequence of each account, one after the other, as texts. In JSON: the
-- driver reads an array only where it has loaded the types of its server.
--
-- ledger_commit, which it follows, stays for a gateway of the version before that may still run.
CREATE FUNCTION ledger_settle(p_batch jsonb) RETURNS jsonb
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
  -- The fence. It must be a locking read of its own: a condition inside another statement would be
  -- judged by that statement's old snapshot after a wait. A key share conflicts with the FOR UPDATE of
  -- whoever declares the instance dead, and not with its heartbeats.
  PERFORM 1 FROM instances
  WHERE id = p_batch->>'instance' AND epoch = (p_batch->>'epoch')::bigint AND alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'instance % was declared dead', p_batch->>'instance' USING ERRCODE = 'GW001';
  END IF;

  IF p_batch ? 'new_accounts' THEN
    INSERT INTO accounts (id, kind, organization_id, key_id, period_start)
    SELECT n.id, n.kind, n.organization_id, n.key_id, n.period_start
    FROM jsonb_to_recordset(p_batch->'new_accounts')
      AS n (id text, kind text, organization_id text, key_id text, period_start date)
    ORDER BY n.id
    ON CONFLICT (id) DO NOTHING;
  END IF;

  IF p_batch ? 'recheck' AND p_batch ? 'settlements' THEN
    PERFORM 1 FROM accounts
    WHERE id IN (SELECT of.id FROM jsonb_to_recordset(p_batch->'accounts') AS of (id text))
    ORDER BY id FOR UPDATE;
    -- Behind the locks: what a writer that still ran has posted is seen.
    PERFORM 1 FROM transactions
    WHERE request_id IN (SELECT s.r FROM jsonb_to_recordset(p_batch->'settlements') AS s (r text));
    IF FOUND THEN
      RETURN NULL;
    END IF;
  END IF;

  IF p_batch ? 'checkpoints' THEN
    INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
      day_account, month_account, hold_nano, charge_nano, model, provider, prompt_tokens,
      completion_tokens, estimated, latency_ms, details, started_at)
    SELECT c.request_id, p_batch->>'instance', (p_batch->>'epoch')::bigint, c.organization_id, c.key_id,
      c.org_account, c.day_account, c.month_account, c.hold_nano, c.charge_nano, c.model, c.provider,
      c.prompt_tokens, c.completion_tokens, c.estimated, c.latency_ms, c.details, c.started_at
    FROM jsonb_to_recordset(p_batch->'checkpoints') AS c (request_id text, organization_id text,
      key_id text, org_account text, day_account text, month_account text, hold_nano bigint,
      charge_nano bigint, model text, provider text, prompt_tokens bigint, completion_tokens bigint,
      estimated boolean, latency_ms integer, details jsonb, started_at timestamptz)
    ON CONFLICT (request_id) DO UPDATE SET charge_nano = EXCLUDED.charge_nano,
      completion_tokens = EXCLUDED.completion_tokens, prompt_tokens = EXCLUDED.prompt_tokens,
      latency_ms = EXCLUDED.latency_ms;
  END IF;

  IF NOT p_batch ? 'accounts' THEN
    RETURN to_jsonb(v_totals);
  END IF;
  -- Batches that lock in the order of ids cannot deadlock.
  FOR t IN
    SELECT * FROM jsonb_to_recordset(p_batch->'accounts') AS of (n integer, id text, c bigint, q bigint)
    ORDER BY of.id
  LOOP
    UPDATE accounts SET posted_nano = posted_nano + t.c, sequence = sequence + t.q,
      last_used_at = CASE kind WHEN 'org' THEN last_used_at ELSE clock_timestamp() END
    WHERE id = t.id
    RETURNING * INTO a;
    -- Without its accounts a charge must fail, not vanish.
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a charge without its account' USING ERRCODE = 'not_null_violation';
    END IF;
    v_totals[3 * t.n - 2] := a.credit_nano::text;
    v_totals[3 * t.n - 1] := a.posted_nano::text;
    v_totals[3 * t.n] := a.sequence::text;
    IF a.kind = 'org' THEN
      v_sequence[t.n] := a.sequence - t.q;
      v_balance[t.n] := a.credit_nano - a.posted_nano + t.c;
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
      completion_tokens, reasoning_tokens, estimated, latency_ms, details)
    SELECT g.organization_id, v_sequence[g.o] + s.n, 'txn_' || substr(s.r, 5), 'usage', -s.c,
      v_balance[g.o] - s.t, g.description, g.key_id, s.r, g.model, g.provider, g.status, s.p,
      coalesce(s.cp, 0), s.o, coalesce(s.ro, 0), g.estimated, s.l, s.d
    FROM jsonb_to_recordset(p_batch->'settlements') AS s (n bigint, g integer, r text, c bigint, t bigint,
      p bigint, cp bigint, o bigint, ro bigint, l integer, d jsonb)
    JOIN jsonb_to_recordset(p_batch->'groups') AS g (g integer, o integer, organization_id text,
      key_id text, model text, provider text, status integer, estimated boolean, description text)
      ON g.g = s.g;
  END IF;

  IF p_batch ? 'attempts' THEN
    DELETE FROM attempts WHERE request_id IN (SELECT jsonb_array_elements_text(p_batch->'attempts'));
  END IF;
  -- Below half a budget there is nothing to tell.
  IF cardinality(v_near) > 0 THEN
    PERFORM emit_budget_events(v_near, false);
  END IF;
  RETURN to_jsonb(v_totals);
END
$$;
