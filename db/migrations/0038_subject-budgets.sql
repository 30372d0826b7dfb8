CREATE TABLE "subject_budgets" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"subject_type" text NOT NULL,
	"subject_value" text NOT NULL,
	"daily_budget_nano" bigint,
	"monthly_budget_nano" bigint,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "subject_budgets_type" CHECK (subject_type IN ('user', 'tag'))
);
--> statement-breakpoint
ALTER TABLE "accounts" ADD COLUMN "budget_id" text;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "subject_accounts" jsonb;--> statement-breakpoint
ALTER TABLE "holds" ADD COLUMN "subject_accounts" jsonb;--> statement-breakpoint
ALTER TABLE "subject_budgets" ADD CONSTRAINT "subject_budgets_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "subject_budgets_subject" ON "subject_budgets" USING btree ("organization_id","subject_type","subject_value");--> statement-breakpoint
CREATE INDEX "subject_budgets_listing" ON "subject_budgets" USING btree ("organization_id","id");--> statement-breakpoint
-- Requests may have further accounts: those of the budgets of their end user and tags, which hold and count what
-- the budgets of the key do. They stand behind the organization's, the day and the month wherever accounts are
-- named. Nothing changes for requests that have none.
--
-- new_accounts: a period has a key or, of a subject, a budget.
CREATE OR REPLACE FUNCTION ledger_create_accounts(p_accounts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO accounts (id, kind, organization_id, key_id, budget_id, period_start)
  SELECT n.id, n.kind, n.organization_id, n.key_id, n.budget_id, n.period_start
  FROM jsonb_to_recordset(p_accounts)
    AS n (id text, kind text, organization_id text, key_id text, budget_id text, period_start date)
  ORDER BY n.id
  ON CONFLICT (id) DO NOTHING;
END
$$;--> statement-breakpoint
-- As in 0019, with subject_accounts.
CREATE OR REPLACE FUNCTION ledger_keep_checkpoints(p_batch jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
    day_account, month_account, subject_accounts, hold_nano, charge_nano, budget_hold_nano, budget_charge_nano, model,
    provider, prompt_tokens, cached_prompt_tokens, completion_tokens, reasoning_tokens, quantities,
    estimated, latency_ms, details, description, started_at)
  SELECT c.request_id, p_batch->>'instance', (p_batch->>'epoch')::bigint, c.organization_id, c.key_id,
    c.org_account, c.day_account, c.month_account, c.subject_accounts, c.hold_nano, c.charge_nano,
    c.budget_hold_nano, c.budget_charge_nano, c.model, c.provider, c.prompt_tokens, c.cached_prompt_tokens,
    c.completion_tokens, c.reasoning_tokens, c.quantities,
    c.estimated, c.latency_ms, c.details, c.description, c.started_at
  FROM jsonb_to_recordset(p_batch->'checkpoints') AS c (request_id text, organization_id text,
    key_id text, org_account text, day_account text, month_account text, subject_accounts jsonb,
    hold_nano bigint, charge_nano bigint, budget_hold_nano bigint, budget_charge_nano bigint, model text,
    provider text, prompt_tokens bigint, cached_prompt_tokens bigint, completion_tokens bigint, reasoning_tokens bigint, quantities jsonb, estimated boolean,
    latency_ms integer, details jsonb, description text, started_at timestamptz)
  ON CONFLICT (request_id) DO UPDATE SET hold_nano = EXCLUDED.hold_nano,
    charge_nano = EXCLUDED.charge_nano, budget_hold_nano = EXCLUDED.budget_hold_nano,
    budget_charge_nano = EXCLUDED.budget_charge_nano, prompt_tokens = EXCLUDED.prompt_tokens,
    cached_prompt_tokens = EXCLUDED.cached_prompt_tokens, completion_tokens = EXCLUDED.completion_tokens,
    reasoning_tokens = EXCLUDED.reasoning_tokens, quantities = EXCLUDED.quantities,
    estimated = EXCLUDED.estimated, latency_ms = EXCLUDED.latency_ms;
END
$$;--> statement-breakpoint
-- Adds to what accounts of subjects hold and count, for a sender that does not name them: one of the previous release.
CREATE FUNCTION ledger_move_subjects(p_accounts jsonb, p_org_account text, p_held bigint, p_posted bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  -- A single-node gateway makes the accounts of a request with its charge.
  INSERT INTO accounts (id, kind, organization_id, budget_id, period_start)
  SELECT s.id, split_part(s.id, ':', 1), split_part(p_org_account, ':', 2), split_part(s.id, ':', 2),
    split_part(s.id, ':', 3)::date
  FROM jsonb_array_elements_text(p_accounts) AS s (id) ORDER BY s.id
  ON CONFLICT (id) DO NOTHING;
  PERFORM 1 FROM accounts WHERE id IN (SELECT jsonb_array_elements_text(p_accounts)) ORDER BY id FOR UPDATE;
  UPDATE accounts SET held_nano = held_nano + p_held, posted_nano = posted_nano + p_posted
  WHERE id IN (SELECT jsonb_array_elements_text(p_accounts));
END
$$;--> statement-breakpoint
-- As in 0019, with the accounts of subjects: accounts of ended and of holds has theirs from the fourth place on,
-- and subjects is set where any has. A refusal has subjects: the amounts of these accounts, in their order.
-- blocked says whether the row stands behind one that waits for a balance or a key ('key'), or for a subject alone.
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
  IF p_batch ? 'subjects' THEN
    FOR h IN
      SELECT i.place::integer AS place, a.posted_nano, a.held_nano,
        CASE a.kind WHEN 'subject_day' THEN b.daily_budget_nano ELSE b.monthly_budget_nano END AS limit_nano
      FROM unnest(v_ids) WITH ORDINALITY AS i (id, place)
      JOIN accounts a ON a.id = i.id AND a.budget_id IS NOT NULL
      -- A budget that was deleted binds nothing more.
      LEFT JOIN subject_budgets b ON b.id = a.budget_id
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
    WHERE holds.id = e.request_id AND holds.org_account = v_ids[e.accounts[1]]
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
-- Gives what the charge of a request has counted back to the accounts of its subjects, behind ledger_refund: their
-- ids come last in the order in which accounts are locked.
CREATE FUNCTION ledger_refund_subjects(p_request text, p_accounts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_charge transactions;
  v_budget text;
BEGIN
  SELECT * INTO v_charge FROM transactions WHERE request_id = p_request;
  PERFORM 1 FROM accounts WHERE id IN (SELECT jsonb_array_elements_text(p_accounts)) ORDER BY id FOR UPDATE;
  UPDATE accounts SET sequence = sequence + 1,
    posted_nano = greatest(posted_nano - coalesce(v_charge.budget_nano, -v_charge.amount_nano), 0)
  WHERE id IN (SELECT jsonb_array_elements_text(p_accounts))
    AND organization_id = v_charge.organization_id AND budget_id IS NOT NULL;
  FOR v_budget IN
    SELECT DISTINCT budget_id FROM accounts
    WHERE id IN (SELECT jsonb_array_elements_text(p_accounts)) AND budget_id IS NOT NULL
  LOOP
    INSERT INTO changes (kind, object_id) VALUES ('subject-budget', v_budget);
    PERFORM pg_notify('gateway_changes', 'subject-budget ' || v_budget);
  END LOOP;
END
$$;--> statement-breakpoint
-- What the previous release calls knows no subjects, and may end what instances of this one have left: their
-- accounts follow here what became of the holds.
ALTER FUNCTION ledger_exchange(jsonb) RENAME TO ledger_exchange_of_keys;--> statement-breakpoint
CREATE FUNCTION ledger_exchange(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  v_requests text[] := ARRAY(SELECT e.r FROM jsonb_to_recordset(p_batch->'ended') AS e (r text));
  v_left jsonb;
  v_answer jsonb;
  h record;
BEGIN
  PERFORM ledger_fence(p_batch);
  PERFORM 1 FROM accounts WHERE id IN (SELECT jsonb_array_elements_text(p_batch->'account_ids'))
  ORDER BY id FOR UPDATE;
  -- Behind the locks, where no other writer ends the same.
  v_left := (
    SELECT jsonb_agg(jsonb_build_object('id', r.id, 'accounts', coalesce(o.subject_accounts, a.subject_accounts),
      'org', coalesce(o.org_account, a.org_account), 'held', coalesce(o.budget_nano, o.hold_nano),
      'was_posted', t.request_id IS NOT NULL))
    FROM unnest(v_requests) AS r (id)
    LEFT JOIN holds o ON o.id = r.id
    LEFT JOIN attempts a ON a.request_id = r.id
    LEFT JOIN transactions t ON t.request_id = r.id
    WHERE o.subject_accounts IS NOT NULL OR a.subject_accounts IS NOT NULL);
  v_answer := ledger_exchange_of_keys(p_batch);
  FOR h IN
    SELECT l.accounts, l.org,
      CASE WHEN l.held IS NOT NULL AND NOT EXISTS (SELECT 1 FROM holds WHERE holds.id = l.id) THEN l.held
        ELSE 0 END AS ended,
      CASE WHEN l.was_posted THEN 0 ELSE coalesce(t.budget_nano, -t.amount_nano, 0) END AS charged
    FROM jsonb_to_recordset(v_left) AS l (id text, accounts jsonb, org text, held bigint, was_posted boolean)
    LEFT JOIN transactions t ON t.request_id = l.id
  LOOP
    PERFORM ledger_move_subjects(h.accounts, h.org, -h.ended, h.charged);
  END LOOP;
  RETURN v_answer;
END
$$;
