-- Adds the organization's next transactions, at most p_most, and as many of its failed requests, to the sums of its
-- usage. Returns true if there may be more. Any number of instances may call it at the same time: the lock of the
-- cursor serializes them, and each transaction is added once, because the cursor moves with the sums.
--
-- Transactions become visible in the order of their sequence, because each is numbered under the lock of its
-- organization's account. So none below the last visible one is missing.
--
-- A charge that is given back takes its cost off the hour in which it was charged. A failed request that was charged
-- counts as one request: if it was added before its charge, the charge adds no request.
--
-- The sums over all organizations are changed with those of the organization, for days from its gateway_since on; a
-- backlog that usage_add_to_gateway adds has the earlier ones. Their rows are locked in the order of their keys.
--
-- Called by rollUpUsage in db/queries/usage-roll-up.ts.
CREATE OR REPLACE FUNCTION usage_roll_up(p_organization text, p_most integer) RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
  -- Quantities that the roll-up has columns for, and those that it does not sum. It sums all others in "quantities".
  c_excluded CONSTANT text[] := '{images, characters, duration_ms, search_units,
    image_pixels, input_images, speakers_ms, web_searches, file_searches,
    cache_write_tokens, cache_write_1h_tokens, audio_prompt_tokens, cached_audio_prompt_tokens,
    audio_completion_tokens, image_prompt_tokens, cached_image_prompt_tokens, image_completion_tokens}';
  v_cursor usage_cursors;
  v_last bigint;
  v_failures bigint;
  v_new_subjects bigint;
  v_days date[];
  v_due text[];
  v_basis_points integer;
  v_plan text;
BEGIN
  SELECT * INTO v_cursor FROM usage_cursors WHERE organization_id = p_organization FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO usage_cursors (organization_id, gateway_since) VALUES (p_organization, '-infinity')
    ON CONFLICT DO NOTHING;
    SELECT * INTO v_cursor FROM usage_cursors WHERE organization_id = p_organization FOR UPDATE;
  END IF;
  -- The sums of this day are still without fees. What follows adds recorded ones to them.
  IF v_cursor.gateway_since = 'infinity' THEN
    PERFORM usage_add_to_gateway(p_organization);
    SELECT * INTO v_cursor FROM usage_cursors WHERE organization_id = p_organization;
  END IF;
  SELECT fee_basis_points, plan INTO v_basis_points, v_plan FROM organizations WHERE id = p_organization;
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
      -t.amount_nano AS cost_nano, p.fee_nano, -t.amount_nano - p.fee_nano AS provider_cost_nano,
      CASE WHEN t.quantities - c_excluded <> '{}' THEN usage_quantities(t.quantities - c_excluded) END AS quantities
    FROM transactions t
    LEFT JOIN LATERAL (
      SELECT * FROM failed_requests WHERE failed_requests.id = t.request_id AND usage_state = 1 LIMIT 1) f ON true
    CROSS JOIN LATERAL (
      SELECT coalesce(t.fee_nano, usage_fee(-t.amount_nano, v_basis_points, v_plan)) AS fee_nano) p
    WHERE t.organization_id = p_organization AND t.sequence > v_cursor.sequence AND t.sequence <= v_last
      AND t.type = 'usage'
    UNION ALL
    SELECT date_bin('1 hour', c.created_at, 'epoch'), c.key_id, c.model, c.provider, c.details->>'user',
      c.details->'metadata'->'tags', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -t.amount_nano,
      -coalesce(round(coalesce(c.fee_nano, usage_fee(-c.amount_nano, v_basis_points, v_plan))
        * t.amount_nano::numeric / nullif(-c.amount_nano, 0)), 0)::bigint, 0, NULL
    FROM transactions t
    CROSS JOIN LATERAL (SELECT * FROM transactions WHERE request_id = t.refunded_request_id LIMIT 1) c
    WHERE t.organization_id = p_organization AND t.sequence > v_cursor.sequence AND t.sequence <= v_last
      AND t.type = 'refund'
    UNION ALL
    -- A request that was rejected before its model was found may have any text as its model.
    SELECT date_bin('1 hour', created_at, 'epoch'), key_id,
      CASE WHEN provider IS NOT NULL OR status NOT IN (400, 404, 413, 415) THEN model END, provider, user_name,
      tags, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL
    FROM failed WHERE charged_at IS NULL
    UNION ALL
    SELECT date_bin('1 hour', charged_at, 'epoch'), charged_key_id, charged_model, charged_provider,
      details->>'user', details->'metadata'->'tags', 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL
    FROM failed WHERE charged_at IS NOT NULL AND (charged_status >= 400) IS NOT TRUE
  ), sums AS MATERIALIZED (
    SELECT hour, coalesce(key_id, '') AS key_id, usage_name(model) AS model,
      usage_name(provider) AS provider, usage_name(user_name) AS user_name, tags, requests, errors,
      prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens,
      coalesce(images, 0) AS images, coalesce(characters, 0) AS characters,
      coalesce(duration_ms, 0) AS duration_ms, coalesce(search_units, 0) AS search_units, cost_nano,
      fee_nano, provider_cost_nano, quantities
    FROM (
      SELECT hour, key_id, model, provider, user_name, tags, sum(requests) AS requests,
        sum(errors) AS errors, sum(prompt_tokens) AS prompt_tokens,
        sum(completion_tokens) AS completion_tokens, sum(cached_tokens) AS cached_tokens,
        sum(reasoning_tokens) AS reasoning_tokens, sum(images) AS images, sum(characters) AS characters,
        sum(duration_ms) AS duration_ms, sum(search_units) AS search_units, sum(cost_nano) AS cost_nano,
        sum(fee_nano) AS fee_nano, sum(provider_cost_nano) AS provider_cost_nano,
        usage_sum_quantities(quantities) AS quantities
      FROM lines GROUP BY hour, key_id, model, provider, user_name, tags
    ) of_each
  ), rolled AS (
    INSERT INTO usage_rollups AS u (organization_id, grain, key_id, starts_at, model, provider, requests,
      errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
      duration_ms, search_units, cost_nano, fee_nano, provider_cost_nano, quantities)
    SELECT p_organization, g.grain, g.key_id, g.starts_at, model, provider, sum(requests), sum(errors),
      sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images),
      sum(characters), sum(duration_ms), sum(search_units), sum(cost_nano), sum(fee_nano),
      sum(provider_cost_nano), usage_sum_quantities(quantities)
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
      search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano,
      fee_nano = u.fee_nano + EXCLUDED.fee_nano,
      provider_cost_nano = u.provider_cost_nano + EXCLUDED.provider_cost_nano,
      quantities = coalesce(usage_add_quantities(u.quantities, EXCLUDED.quantities), u.quantities, EXCLUDED.quantities)
  ), of_gateway AS (
    INSERT INTO usage_gateway AS u (grain, starts_at, model, provider, requests, errors, prompt_tokens,
      completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms, search_units,
      cost_nano, fee_nano, provider_cost_nano, quantities)
    SELECT g.grain, g.starts_at, model, provider, sum(requests), sum(errors), sum(prompt_tokens),
      sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images), sum(characters),
      sum(duration_ms), sum(search_units), sum(cost_nano), sum(fee_nano), sum(provider_cost_nano),
      usage_sum_quantities(quantities)
    FROM sums s CROSS JOIN LATERAL (
      VALUES ('hour', s.hour), ('day', date_trunc('day', s.hour, 'UTC'))
    ) AS g (grain, starts_at)
    WHERE date_trunc('day', s.hour, 'UTC') >= v_cursor.gateway_since
    GROUP BY g.grain, g.starts_at, model, provider
    ORDER BY g.grain, g.starts_at, model, provider
    ON CONFLICT (grain, starts_at, model, provider) DO UPDATE SET
      requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
      prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
      completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
      cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
      reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens,
      images = u.images + EXCLUDED.images, characters = u.characters + EXCLUDED.characters,
      duration_ms = u.duration_ms + EXCLUDED.duration_ms,
      search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano,
      fee_nano = u.fee_nano + EXCLUDED.fee_nano,
      provider_cost_nano = u.provider_cost_nano + EXCLUDED.provider_cost_nano,
      quantities = coalesce(usage_add_quantities(u.quantities, EXCLUDED.quantities), u.quantities, EXCLUDED.quantities)
  ), subjected AS MATERIALIZED (
    -- Each sum once for its user, and once for each of its tags.
    SELECT sums.*, s.kind, s.value
    FROM sums CROSS JOIN LATERAL (
      SELECT 'user' AS kind, user_name AS value
      UNION ALL SELECT 'tag', '' WHERE tags IS NULL
      UNION ALL SELECT 'tag', tag FROM usage_tags(tags) AS tag WHERE tags IS NOT NULL
    ) s
  ), subjects AS (
    INSERT INTO usage_subjects AS u (organization_id, kind, day, value, key_id, model, provider, requests,
      errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
      duration_ms, search_units, cost_nano, fee_nano, provider_cost_nano, quantities)
    SELECT p_organization, kind, (hour AT TIME ZONE 'UTC')::date, value, key_id, model, provider,
      sum(requests), sum(errors), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
      sum(reasoning_tokens), sum(images), sum(characters), sum(duration_ms),
      sum(search_units), sum(cost_nano), sum(fee_nano),
      sum(provider_cost_nano), usage_sum_quantities(quantities)
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
      search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano,
      fee_nano = u.fee_nano + EXCLUDED.fee_nano,
      provider_cost_nano = u.provider_cost_nano + EXCLUDED.provider_cost_nano,
      quantities = coalesce(usage_add_quantities(u.quantities, EXCLUDED.quantities), u.quantities, EXCLUDED.quantities)
    -- xmax of a row that existed before is the transaction that locked it.
    RETURNING u.xmax = 0 AS is_new
  ), totals AS (
    INSERT INTO usage_totals AS u (organization_id, kind, starts_at, value, requests, errors, prompt_tokens,
      completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms, search_units,
      cost_nano, fee_nano, provider_cost_nano, quantities)
    SELECT p_organization, g.kind, g.starts_at, g.value, sum(requests), sum(errors), sum(prompt_tokens),
      sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images), sum(characters),
      sum(duration_ms), sum(search_units), sum(cost_nano), sum(fee_nano),
      sum(provider_cost_nano), usage_sum_quantities(quantities)
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
      search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano,
      fee_nano = u.fee_nano + EXCLUDED.fee_nano,
      provider_cost_nano = u.provider_cost_nano + EXCLUDED.provider_cost_nano,
      quantities = coalesce(usage_add_quantities(u.quantities, EXCLUDED.quantities), u.quantities, EXCLUDED.quantities)
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
  ), timed_of_gateway AS (
    INSERT INTO usage_gateway_latencies AS u (grain, starts_at, model, provider, bucket, requests)
    SELECT g.grain, g.starts_at, usage_name(model), usage_name(provider), usage_bucket(latency_ms), sum(requests)
    FROM (
      SELECT date_bin('1 hour', created_at, 'epoch') AS hour, model, provider, latency_ms, count(*) AS requests
      FROM transactions
      WHERE organization_id = p_organization AND sequence > v_cursor.sequence AND sequence <= v_last
        AND type = 'usage' AND status < 400 AND latency_ms IS NOT NULL
      GROUP BY 1, 2, 3, 4
    ) answered CROSS JOIN LATERAL (
      VALUES ('hour', hour), ('day', date_trunc('day', hour, 'UTC'))
    ) AS g (grain, starts_at)
    WHERE date_trunc('day', hour, 'UTC') >= v_cursor.gateway_since
    GROUP BY g.grain, g.starts_at, usage_name(model), usage_name(provider), usage_bucket(latency_ms)
    ORDER BY g.grain, g.starts_at, usage_name(model), usage_name(provider), usage_bucket(latency_ms)
    ON CONFLICT (grain, starts_at, model, provider, bucket) DO UPDATE SET
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
  UPDATE usage_cursors SET sequence = v_last, new_subjects = v_new_subjects
  WHERE organization_id = p_organization;
  RETURN v_last = v_cursor.sequence + p_most OR v_failures = p_most;
END
$$;
