ALTER TABLE "attempts" ADD COLUMN "cached_prompt_tokens" bigint;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "reasoning_tokens" bigint;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "quantities" jsonb;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "description" text;--> statement-breakpoint
ALTER TABLE "transactions" ADD COLUMN "quantities" jsonb;--> statement-breakpoint
-- The functions that write the ledger's batches. They replace ledger_settle and ledger_exchange, which
-- instances of the previous release call while they are replaced one by one; the next release may drop them.
-- ledger_commit belongs to a release before that. Differences: members of the batches have names, uses
-- beyond tokens of text are stored, holds are priced by the sender alone, and holds can be extended.
DROP FUNCTION ledger_commit(jsonb);--> statement-breakpoint
-- Raises GW001 where the instance was declared dead. It must be a locking read of its own: a condition
-- inside another statement would be judged by that statement's old snapshot after a wait. The key share
-- conflicts with the FOR UPDATE of the instance that declares it dead, and not with its own heartbeats.
CREATE FUNCTION ledger_fence(p_batch jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM instances
  WHERE id = p_batch->>'instance' AND epoch = (p_batch->>'epoch')::bigint AND alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'instance % was declared dead', p_batch->>'instance' USING ERRCODE = 'GW001';
  END IF;
END
$$;--> statement-breakpoint
-- Creates the periods of keys that have no row yet.
CREATE FUNCTION ledger_create_accounts(p_accounts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO accounts (id, kind, organization_id, key_id, period_start)
  SELECT n.id, n.kind, n.organization_id, n.key_id, n.period_start
  FROM jsonb_to_recordset(p_accounts)
    AS n (id text, kind text, organization_id text, key_id text, period_start date)
  ORDER BY n.id
  ON CONFLICT (id) DO NOTHING;
END
$$;--> statement-breakpoint
-- Writes what running requests would be charged if their instance died now. A later checkpoint replaces the
-- figures of the one before; model, description and details do not change behind the first.
CREATE FUNCTION ledger_keep_checkpoints(p_batch jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
    day_account, month_account, hold_nano, charge_nano, model, provider, prompt_tokens,
    cached_prompt_tokens, completion_tokens, reasoning_tokens, quantities, estimated, latency_ms, details,
    description, started_at)
  SELECT c.request_id, p_batch->>'instance', (p_batch->>'epoch')::bigint, c.organization_id, c.key_id,
    c.org_account, c.day_account, c.month_account, c.hold_nano, c.charge_nano, c.model, c.provider,
    c.prompt_tokens, c.cached_prompt_tokens, c.completion_tokens, c.reasoning_tokens, c.quantities,
    c.estimated, c.latency_ms, c.details, c.description, c.started_at
  FROM jsonb_to_recordset(p_batch->'checkpoints') AS c (request_id text, organization_id text,
    key_id text, org_account text, day_account text, month_account text, hold_nano bigint,
    charge_nano bigint, model text, provider text, prompt_tokens bigint, cached_prompt_tokens bigint,
    completion_tokens bigint, reasoning_tokens bigint, quantities jsonb, estimated boolean,
    latency_ms integer, details jsonb, description text, started_at timestamptz)
  ON CONFLICT (request_id) DO UPDATE SET hold_nano = EXCLUDED.hold_nano,
    charge_nano = EXCLUDED.charge_nano, prompt_tokens = EXCLUDED.prompt_tokens,
    cached_prompt_tokens = EXCLUDED.cached_prompt_tokens, completion_tokens = EXCLUDED.completion_tokens,
    reasoning_tokens = EXCLUDED.reasoning_tokens, quantities = EXCLUDED.quantities,
    estimated = EXCLUDED.estimated, latency_ms = EXCLUDED.latency_ms;
END
$$;--> statement-breakpoint
-- One batch of the ledger of a single-node gateway, in one statement, so that it costs one round trip and
-- commits as a whole. A batch mostly has a few charges of one organization, and its cost is its statements,
-- not its rows: so the sender computes the sums, and the totals that they are added to are read and changed
-- in one step.
--
-- accounts: each account that a charge touches, once: its place in the batch from 1, the sum of its charges,
-- and how many transactions an organization gets.
-- settlements: position is the place among the charges of the organization from 1, sum_nano the sum of these
-- charges up to it. groups: what many settlements have in common (key, model …), sent once.
-- new_accounts: key periods that may not have a row yet. attempts: requests whose rows end.
-- recheck: an earlier try, or another writer, may have posted some of it. Where that is so, nothing is
-- written and NULL returned, and the sender looks up what is posted.
-- Returns credit_nano, posted_nano and sequence of each account, one after the other, as texts. In JSON: the
-- driver reads an array only where it has loaded the types of its server.
CREATE FUNCTION ledger_settle_batch(p_batch jsonb) RETURNS jsonb
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
      completion_tokens, reasoning_tokens, quantities, estimated, latency_ms, details)
    SELECT g.organization_id, v_sequence[g.account] + s.position, 'txn_' || substr(s.request_id, 5), 'usage',
      -s.charge_nano, v_balance[g.account] - s.sum_nano, g.description, g.key_id, s.request_id, g.model,
      g.provider, g.status, s.prompt_tokens, coalesce(s.cached_prompt_tokens, 0), s.completion_tokens,
      coalesce(s.reasoning_tokens, 0), s.quantities, g.estimated, s.latency_ms, s.details
    FROM jsonb_to_recordset(p_batch->'settlements') AS s (position bigint, "group" integer,
      request_id text, charge_nano bigint, sum_nano bigint, prompt_tokens bigint,
      cached_prompt_tokens bigint, completion_tokens bigint, reasoning_tokens bigint, quantities jsonb,
      latency_ms integer, details jsonb)
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
-- One batch of the ledger where several instances share the database: ends holds, posts their charges,
-- decides new holds and extensions, and keeps checkpoints, in one statement and one round trip.
--
-- account_ids: the accounts of the batch. Rows name theirs by places in it, from 1: accounts is
-- [organization, day, month], the account of a group is the organization's.
-- ended: holds that end, with charge_nano where they are charged and not released.
-- holds: what is asked for, in order. Amounts are prepared by the sender: full_nano is granted where every
-- account has so much free; else, where least_nano is free, all that is free up to most_nano. With is_last
-- a row passes rows that wait before it, and keeps none behind itself. With extends it raises the amount of
-- a hold of this instance to full_nano, which is done already where an earlier try has done it.
-- recheck: an earlier try may have written some of it; that try is over. Its holds are among ended.
-- reaping: the ended are those of dead instances, single-node ones included.
-- settlements, groups, new_accounts, attempts, checkpoints: as ledger_settle_batch.
-- Returns a verdict for each of holds that was not granted full_nano: held_nano, or blocked, or is_active
-- (not true), or gone, or limit, unspent and free amounts of the three accounts as texts.
CREATE FUNCTION ledger_exchange_batch(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  v_instance text := p_batch->>'instance';
  v_epoch bigint := p_batch->>'epoch';
  v_ids text[] := ARRAY(SELECT jsonb_array_elements_text(p_batch->'account_ids'));
  v_posted_before text[] := '{}';
  v_ended_nano bigint[] := '{}';
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
  v_verdicts jsonb[] := '{}';
  v_available bigint;
  v_before bigint;
  v_size bigint;
  v_at integer;
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
    RETURNING e.position, e.accounts, holds.hold_nano
  LOOP
    v_ended_nano[h.position] := h.hold_nano;
    FOREACH v_at IN ARRAY h.accounts LOOP
      v_moved[v_at] := v_moved[v_at] - h.hold_nano;
      v_free[v_at] := v_free[v_at] + h.hold_nano;
    END LOOP;
  END LOOP;

  FOR h IN
    SELECT * FROM jsonb_to_recordset(p_batch->'ended')
      AS e (position integer, request_id text, accounts integer[], charge_nano bigint)
    WHERE e.charge_nano IS NOT NULL AND e.request_id <> ALL (v_posted_before)
  LOOP
    -- A single-node gateway holds in its memory: of a dead one the attempt says what it held.
    IF v_ended_nano[h.position] IS NULL AND p_batch ? 'reaping' THEN
      v_ended_nano[h.position] := (
        SELECT a.hold_nano FROM attempts a JOIN instances i ON i.id = a.instance_id AND i.epoch = a.epoch
        WHERE a.request_id = h.request_id AND i.is_alone);
    END IF;
    IF h.charge_nano > coalesce(v_ended_nano[h.position], 0) THEN
      RAISE EXCEPTION 'a charge goes beyond its hold' USING ERRCODE = 'GW002';
    END IF;
    FOREACH v_at IN ARRAY h.accounts LOOP
      -- Without its accounts a charge must fail, not vanish.
      IF v_sequence[v_at] IS NULL THEN
        RAISE EXCEPTION 'a charge without its account' USING ERRCODE = 'not_null_violation';
      END IF;
      v_charged[v_at] := v_charged[v_at] + h.charge_nano;
      v_count[v_at] := v_count[v_at] + 1;
      v_unspent[v_at] := v_unspent[v_at] - h.charge_nano;
      v_free[v_at] := v_free[v_at] - h.charge_nano;
    END LOOP;
  END LOOP;

  FOR h IN
    SELECT d.*, d.accounts[1] AS org, d.accounts[2] AS day, d.accounts[3] AS month
    FROM jsonb_to_recordset(p_batch->'holds') AS d (request_id text, accounts integer[],
      full_nano numeric, least_nano numeric, most_nano numeric, is_last boolean, extends boolean)
  LOOP
    v_before := 0;
    IF h.extends THEN
      v_before := (
        SELECT holds.hold_nano FROM holds WHERE holds.id = h.request_id AND holds.instance_id = v_instance
          AND holds.epoch = v_epoch AND holds.org_account = v_ids[h.org]
          AND holds.day_account = v_ids[h.day] AND holds.month_account = v_ids[h.month]);
      CONTINUE WHEN v_before >= h.full_nano;
    END IF;
    v_size := NULL;
    -- Without any limit only what a bigint can count is. What an extended hold has is available to it.
    v_available := coalesce(least(v_free[h.org], v_free[h.day], v_free[h.month]) + v_before, 9223372036854775807);
    IF v_before IS NULL THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'gone', true);
    ELSIF v_active[h.day] IS NOT TRUE THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'is_active', v_active[h.day]);
    ELSIF h.is_last IS NOT TRUE AND (v_blocked[h.org] OR v_blocked[h.day]) THEN
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'blocked', true);
    ELSIF h.full_nano <= v_available THEN
      v_size := h.full_nano;
    ELSIF h.least_nano <= v_available THEN
      v_size := least(h.most_nano, v_available);
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'held_nano', v_size::text);
    ELSE
      v_verdicts := v_verdicts || jsonb_build_object('request_id', h.request_id, 'is_active', true,
        'organization', jsonb_build_array(v_limit[h.org]::text, v_unspent[h.org]::text, v_free[h.org]::text),
        'day', jsonb_build_array(v_limit[h.day]::text, v_unspent[h.day]::text, v_free[h.day]::text),
        'month', jsonb_build_array(v_limit[h.month]::text, v_unspent[h.month]::text, v_free[h.month]::text));
      -- A later row that needs what this one waits for stands behind it; no row waits for what is spent.
      IF h.is_last IS NOT TRUE AND h.least_nano <= coalesce(v_unspent[h.org], h.least_nano)
        AND h.least_nano <= coalesce(v_unspent[h.day], h.least_nano)
        AND h.least_nano <= coalesce(v_unspent[h.month], h.least_nano)
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
      UPDATE holds SET hold_nano = v_size WHERE id = h.request_id;
    ELSE
      v_granted := v_granted || h.request_id;
      v_granted_nano := v_granted_nano || v_size;
    END IF;
    FOREACH v_at IN ARRAY h.accounts LOOP
      v_moved[v_at] := v_moved[v_at] + v_size - v_before;
      v_free[v_at] := v_free[v_at] - v_size + v_before;
    END LOOP;
  END LOOP;

  IF cardinality(v_granted) > 0 THEN
    INSERT INTO holds (id, instance_id, epoch, org_account, day_account, month_account, hold_nano)
    SELECT g.id, v_instance, v_epoch, v_ids[d.accounts[1]], v_ids[d.accounts[2]], v_ids[d.accounts[3]], g.nano
    FROM unnest(v_granted, v_granted_nano) AS g (id, nano)
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
      completion_tokens, reasoning_tokens, quantities, estimated, latency_ms, details)
    SELECT g.organization_id, v_sequence[g.account] + row_number() OVER w, 'txn_' || substr(s.request_id, 5),
      'usage', -s.charge_nano, v_balance[g.account] - sum(s.charge_nano) OVER w, g.description, g.key_id,
      s.request_id, g.model, g.provider, g.status, s.prompt_tokens, coalesce(s.cached_prompt_tokens, 0),
      s.completion_tokens, coalesce(s.reasoning_tokens, 0), s.quantities, g.estimated, s.latency_ms, s.details
    FROM jsonb_to_recordset(p_batch->'settlements') AS s (position integer, "group" integer,
      request_id text, charge_nano bigint, prompt_tokens bigint, cached_prompt_tokens bigint,
      completion_tokens bigint, reasoning_tokens bigint, quantities jsonb, latency_ms integer, details jsonb)
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
$$;
