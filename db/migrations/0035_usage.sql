CREATE TABLE "usage_cursors" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"sequence" bigint DEFAULT 0 NOT NULL,
	"new_subjects" integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "usage_latencies" (
	"organization_id" text NOT NULL,
	"measure" text NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"bucket" smallint NOT NULL,
	"requests" bigint NOT NULL,
	CONSTRAINT "usage_latencies_pk" PRIMARY KEY("organization_id","measure","hour","bucket")
);
--> statement-breakpoint
CREATE TABLE "usage_rollups" (
	"organization_id" text NOT NULL,
	"grain" text NOT NULL,
	"key_id" text NOT NULL,
	"starts_at" timestamp with time zone NOT NULL,
	"model" text NOT NULL,
	"provider" text NOT NULL,
	"requests" bigint NOT NULL,
	"errors" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"reasoning_tokens" bigint NOT NULL,
	"images" bigint NOT NULL,
	"characters" bigint NOT NULL,
	"duration_ms" bigint NOT NULL,
	"cost_nano" bigint NOT NULL,
	CONSTRAINT "usage_rollups_pk" PRIMARY KEY("organization_id","grain","key_id","starts_at","model","provider")
);
--> statement-breakpoint
CREATE TABLE "usage_subjects" (
	"organization_id" text NOT NULL,
	"kind" text NOT NULL,
	"day" date NOT NULL,
	"value" text NOT NULL,
	"key_id" text NOT NULL,
	"model" text NOT NULL,
	"provider" text NOT NULL,
	"requests" bigint NOT NULL,
	"errors" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"reasoning_tokens" bigint NOT NULL,
	"images" bigint NOT NULL,
	"characters" bigint NOT NULL,
	"duration_ms" bigint NOT NULL,
	"cost_nano" bigint NOT NULL,
	CONSTRAINT "usage_subjects_pk" PRIMARY KEY("organization_id","kind","day","value","key_id","model","provider")
);
--> statement-breakpoint
ALTER TABLE "failed_requests" ADD COLUMN "tags" jsonb;--> statement-breakpoint
ALTER TABLE "failed_requests" ADD COLUMN "usage_state" smallint DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX "usage_rollups_time" ON "usage_rollups" USING btree ("organization_id","grain","starts_at");--> statement-breakpoint
CREATE INDEX "failed_requests_new" ON "failed_requests" USING btree ("organization_id") WHERE usage_state = 0;--> statement-breakpoint
-- A text as an index can hold it; empty where there is none.
CREATE FUNCTION usage_name(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_text IS NULL THEN '' WHEN octet_length(p_text) <= 256 THEN p_text
    ELSE left(p_text, 48) || '…' || md5(p_text) END
$$;--> statement-breakpoint
-- The tags of a request, each once, at most 20; an empty one where there are none.
CREATE FUNCTION usage_tags(p_tags jsonb) RETURNS SETOF text
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 2 AS $$
  WITH tags AS (
    SELECT DISTINCT usage_name(tag #>> '{}') AS name FROM (
      SELECT tag FROM jsonb_array_elements(CASE jsonb_typeof(p_tags) WHEN 'array' THEN p_tags ELSE '[]' END)
        WITH ORDINALITY AS elements (tag, place)
      WHERE jsonb_typeof(tag) = 'string' AND tag <> '""' ORDER BY place LIMIT 20
    ) first_ones
  )
  SELECT name FROM tags UNION ALL SELECT '' WHERE NOT EXISTS (SELECT FROM tags)
$$;--> statement-breakpoint
-- A number of things. What no request can have used must not make a sum overflow.
CREATE FUNCTION usage_count(p_count numeric) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT least(trunc(coalesce(p_count, 0)), 1000000000000)::bigint
$$;--> statement-breakpoint
-- Buckets grow by the eighth root of two: bucket b > 0 counts from 2^((b - 1) / 8) ms, 0 what is below one.
CREATE FUNCTION usage_bucket(p_ms double precision) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_ms < 1 THEN 0 ELSE 1 + floor(8 * ln(least(p_ms, 2147483647)) / ln(2::double precision)) END::smallint
$$;--> statement-breakpoint
-- Where a day has more than 5,000 users or tags, its 2,500 largest stay; the others become one.
CREATE FUNCTION usage_fold_subjects(p_organization text, p_days date[]) RETURNS void
LANGUAGE sql SET enable_seqscan = off SET jit = off AS $$
  WITH ranked AS (
    SELECT kind, day, value, count(*) OVER (PARTITION BY kind, day) AS number,
      row_number() OVER (PARTITION BY kind, day
        ORDER BY sum(cost_nano) DESC, sum(requests) DESC, value COLLATE "C") AS place
    FROM usage_subjects
    WHERE organization_id = p_organization AND kind IN ('user', 'tag') AND day = ANY (p_days) AND value <> ''
    GROUP BY kind, day, value
  ), folded AS (
    DELETE FROM usage_subjects s USING ranked r
    WHERE r.number > 5000 AND r.place > 2500
      AND s.organization_id = p_organization AND s.kind = r.kind AND s.day = r.day AND s.value = r.value
    RETURNING s.*
  )
  INSERT INTO usage_subjects AS u (organization_id, kind, day, value, key_id, model, provider, requests,
    errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
    duration_ms, cost_nano)
  SELECT p_organization, 'other_' || kind, day, '', key_id, model, provider, sum(requests), sum(errors),
    sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images),
    sum(characters), sum(duration_ms), sum(cost_nano)
  FROM folded GROUP BY kind, day, key_id, model, provider
  ON CONFLICT (organization_id, kind, day, value, key_id, model, provider) DO UPDATE SET
    requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
    prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
    completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
    cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
    reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens, images = u.images + EXCLUDED.images,
    characters = u.characters + EXCLUDED.characters, duration_ms = u.duration_ms + EXCLUDED.duration_ms,
    cost_nano = u.cost_nano + EXCLUDED.cost_nano
$$;--> statement-breakpoint
-- Adds the organization's next transactions, p_most at most, and as many of its failed requests, to the sums of
-- its usage. Returns whether there may be more. Any number of instances may call it at once: the lock of the cursor
-- lets one at a time, and each transaction is added once, because the cursor moves with the sums.
--
-- Transactions become visible in the order of their sequence, since each is numbered under the lock of its
-- organization's account: none below the last that is seen is still to come.
--
-- A charge that is given back takes its cost off the hour in which it was charged. A failed request that was
-- charged is one request. Where it was added before its charge, the charge counts none.
CREATE FUNCTION usage_roll_up(p_organization text, p_most integer) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_cursor usage_cursors;
  v_last bigint;
  v_failures bigint;
  v_new_subjects bigint;
  v_days date[];
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

  WITH failed AS (
    UPDATE failed_requests f SET usage_state = CASE WHEN t.id IS NULL THEN 1 ELSE 2 END
    FROM (
      SELECT id FROM failed_requests WHERE organization_id = p_organization AND usage_state = 0
      LIMIT p_most
    ) due
    LEFT JOIN transactions t ON t.request_id = due.id AND t.type = 'usage'
    WHERE f.id = due.id
    RETURNING f.id, f.created_at, f.key_id, f.model, f.provider, f.status, f.user_name, f.tags,
      t.created_at AS charged_at, t.key_id AS charged_key_id, t.model AS charged_model,
      t.provider AS charged_provider, t.status AS charged_status, t.details
  ), lines AS MATERIALIZED (
    SELECT date_trunc('hour', t.created_at, 'UTC') AS hour, coalesce(t.key_id, '') AS key_id,
      usage_name(t.model) AS model, usage_name(t.provider) AS provider,
      CASE WHEN f.id IS NULL THEN 1 ELSE 0 END AS requests,
      CASE WHEN f.id IS NULL AND t.status >= 400 THEN 1 ELSE 0 END AS errors,
      usage_count(t.prompt_tokens) AS prompt_tokens, usage_count(t.completion_tokens) AS completion_tokens,
      usage_count(t.cached_prompt_tokens) AS cached_tokens, usage_count(t.reasoning_tokens) AS reasoning_tokens,
      usage_count((t.quantities->>'images')::numeric) AS images,
      usage_count((t.quantities->>'characters')::numeric) AS characters,
      usage_count((t.quantities->>'duration_ms')::numeric) AS duration_ms, -t.amount_nano AS cost_nano,
      usage_name(t.details->>'user') AS user_name, t.details->'metadata'->'tags' AS tags,
      CASE WHEN t.status < 400 AND f.id IS NULL THEN t.latency_ms END AS latency_ms,
      CASE WHEN t.status < 400 AND f.id IS NULL THEN (t.details->>'first_token_ms')::double precision
      END AS first_token_ms
    FROM transactions t
    LEFT JOIN failed_requests f ON f.id = t.request_id AND f.usage_state = 1
    WHERE t.organization_id = p_organization AND t.sequence > v_cursor.sequence AND t.sequence <= v_last
      AND t.type = 'usage'
    UNION ALL
    SELECT date_trunc('hour', c.created_at, 'UTC'), coalesce(c.key_id, ''), usage_name(c.model),
      usage_name(c.provider), 0, 0, 0, 0, 0, 0, 0, 0, 0, -t.amount_nano, usage_name(c.details->>'user'),
      c.details->'metadata'->'tags', NULL, NULL
    FROM transactions t JOIN transactions c ON c.request_id = t.refunded_request_id
    WHERE t.organization_id = p_organization AND t.sequence > v_cursor.sequence AND t.sequence <= v_last
      AND t.type = 'refund'
    UNION ALL
    -- What was refused before its model was found has any text for one.
    SELECT date_trunc('hour', created_at, 'UTC'), key_id,
      CASE WHEN provider IS NULL AND status IN (400, 404, 413, 415) THEN '' ELSE usage_name(model) END,
      usage_name(provider), 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, usage_name(user_name), tags, NULL, NULL
    FROM failed WHERE charged_at IS NULL
    UNION ALL
    SELECT date_trunc('hour', charged_at, 'UTC'), coalesce(charged_key_id, ''), usage_name(charged_model),
      usage_name(charged_provider), 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, usage_name(details->>'user'),
      details->'metadata'->'tags', NULL, NULL
    FROM failed WHERE charged_at IS NOT NULL AND (charged_status >= 400) IS NOT TRUE
  ), hourly AS MATERIALIZED (
    SELECT hour, key_id, model, provider, sum(requests) AS requests, sum(errors) AS errors,
      sum(prompt_tokens) AS prompt_tokens, sum(completion_tokens) AS completion_tokens,
      sum(cached_tokens) AS cached_tokens, sum(reasoning_tokens) AS reasoning_tokens,
      sum(images) AS images, sum(characters) AS characters, sum(duration_ms) AS duration_ms,
      sum(cost_nano) AS cost_nano
    FROM lines GROUP BY hour, key_id, model, provider
  ), rolled AS (
    INSERT INTO usage_rollups AS u (organization_id, grain, key_id, starts_at, model, provider, requests,
      errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
      duration_ms, cost_nano)
    SELECT p_organization, g.grain, g.key_id, g.starts_at, model, provider, sum(requests), sum(errors),
      sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images),
      sum(characters), sum(duration_ms), sum(cost_nano)
    FROM hourly h CROSS JOIN LATERAL (VALUES
      ('hour', '', h.hour), ('key_hour', h.key_id, h.hour),
      ('day', '', date_trunc('day', h.hour, 'UTC')), ('key_day', h.key_id, date_trunc('day', h.hour, 'UTC'))
    ) AS g (grain, key_id, starts_at)
    GROUP BY g.grain, g.key_id, g.starts_at, model, provider
    ON CONFLICT (organization_id, grain, key_id, starts_at, model, provider) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
      prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
      completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
      cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
      reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens,
      images = u.images + EXCLUDED.images, characters = u.characters + EXCLUDED.characters,
      duration_ms = u.duration_ms + EXCLUDED.duration_ms, cost_nano = u.cost_nano + EXCLUDED.cost_nano
  ), subjects AS (
    INSERT INTO usage_subjects AS u (organization_id, kind, day, value, key_id, model, provider, requests,
      errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
      duration_ms, cost_nano)
    SELECT p_organization, s.kind, (hour AT TIME ZONE 'UTC')::date, s.value, key_id, model, provider,
      sum(requests), sum(errors), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
      sum(reasoning_tokens), sum(images), sum(characters), sum(duration_ms), sum(cost_nano)
    FROM lines CROSS JOIN LATERAL (
      SELECT 'user' AS kind, user_name AS value
      UNION ALL SELECT 'tag', '' WHERE tags IS NULL
      UNION ALL SELECT 'tag', tag FROM usage_tags(tags) AS tag WHERE tags IS NOT NULL
    ) s
    GROUP BY s.kind, (hour AT TIME ZONE 'UTC')::date, s.value, key_id, model, provider
    ON CONFLICT (organization_id, kind, day, value, key_id, model, provider) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
      prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
      completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
      cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
      reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens,
      images = u.images + EXCLUDED.images, characters = u.characters + EXCLUDED.characters,
      duration_ms = u.duration_ms + EXCLUDED.duration_ms, cost_nano = u.cost_nano + EXCLUDED.cost_nano
    -- Of a row that was there before, the transaction that locked it.
    RETURNING u.xmax = 0 AS is_new
  ), timed AS (
    INSERT INTO usage_latencies AS u (organization_id, measure, hour, bucket, requests)
    SELECT p_organization, m.measure, hour, usage_bucket(m.ms), count(*)
    FROM lines CROSS JOIN LATERAL (VALUES ('total', latency_ms), ('first_token', first_token_ms))
      AS m (measure, ms)
    WHERE m.ms IS NOT NULL
    GROUP BY m.measure, hour, usage_bucket(m.ms)
    ON CONFLICT (organization_id, measure, hour, bucket) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests
  )
  SELECT (SELECT count(*) FROM failed), (SELECT count(*) FILTER (WHERE is_new) FROM subjects),
    (SELECT array_agg(DISTINCT (hour AT TIME ZONE 'UTC')::date) FROM lines)
  INTO v_failures, v_new_subjects, v_days;

  v_new_subjects := v_new_subjects + v_cursor.new_subjects;
  IF v_new_subjects >= 1000 THEN
    PERFORM usage_fold_subjects(p_organization, v_days);
    v_new_subjects := 0;
  END IF;
  UPDATE usage_cursors SET sequence = v_last, new_subjects = v_new_subjects
  WHERE organization_id = p_organization;
  RETURN v_last = v_cursor.sequence + p_most OR v_failures = p_most;
END
$$;
