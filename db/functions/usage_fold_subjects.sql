-- Limits the number of users and of tags per day. If a day has more than 5,000, the 2,500 with the highest cost stay
-- and the others are added up as one. Days before totals_since are skipped until usage_add_totals has added them.
--
-- Called by usage_roll_up.
CREATE OR REPLACE FUNCTION usage_fold_subjects(p_organization text, p_days date[]) RETURNS void
LANGUAGE sql SET enable_seqscan = off SET jit = off AS $$
  WITH ranked AS (
    SELECT kind, starts_at, (starts_at AT TIME ZONE 'UTC')::date AS day, value,
      count(*) OVER (PARTITION BY kind, starts_at) AS number,
      row_number() OVER (PARTITION BY kind, starts_at
        ORDER BY cost_nano DESC, requests DESC, value COLLATE "C") AS place
    FROM usage_totals
    WHERE organization_id = p_organization AND kind IN ('user', 'tag') AND value <> ''
      AND starts_at = ANY (SELECT day::timestamp AT TIME ZONE 'UTC' FROM unnest(p_days) AS day)
      AND starts_at >= (SELECT totals_since FROM usage_cursors WHERE organization_id = p_organization)
  ), surplus AS MATERIALIZED (
    SELECT * FROM ranked WHERE number > 5000 AND place > 2500
  ), taken AS (
    DELETE FROM usage_totals t USING surplus s
    WHERE t.organization_id = p_organization AND t.kind = s.kind AND t.starts_at = s.starts_at AND t.value = s.value
  ), folded AS (
    DELETE FROM usage_subjects s USING surplus r
    WHERE s.organization_id = p_organization AND s.kind = r.kind AND s.day = r.day AND s.value = r.value
    RETURNING s.*
  ), totalled AS (
    INSERT INTO usage_totals AS u (organization_id, kind, starts_at, value, requests, errors, prompt_tokens,
      completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms, search_units,
      cost_nano, fee_nano, provider_cost_nano, quantities)
    SELECT p_organization, 'other_' || kind, day::timestamp AT TIME ZONE 'UTC', '', sum(requests), sum(errors),
      sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images),
      sum(characters), sum(duration_ms), sum(search_units), sum(cost_nano), sum(fee_nano),
      sum(provider_cost_nano), usage_sum_quantities(quantities)
    FROM folded GROUP BY kind, day
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
  )
  INSERT INTO usage_subjects AS u (organization_id, kind, day, value, key_id, model, provider, requests,
    errors, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters,
    duration_ms, search_units, cost_nano, fee_nano, provider_cost_nano, quantities)
  SELECT p_organization, 'other_' || kind, day, '', key_id, model, provider, sum(requests), sum(errors),
    sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images),
    sum(characters), sum(duration_ms), sum(search_units), sum(cost_nano), sum(fee_nano),
      sum(provider_cost_nano), usage_sum_quantities(quantities)
  FROM folded GROUP BY kind, day, key_id, model, provider
  ON CONFLICT (organization_id, kind, day, value, key_id, model, provider) DO UPDATE SET
    requests = u.requests + EXCLUDED.requests, errors = u.errors + EXCLUDED.errors,
    prompt_tokens = u.prompt_tokens + EXCLUDED.prompt_tokens,
    completion_tokens = u.completion_tokens + EXCLUDED.completion_tokens,
    cached_tokens = u.cached_tokens + EXCLUDED.cached_tokens,
    reasoning_tokens = u.reasoning_tokens + EXCLUDED.reasoning_tokens, images = u.images + EXCLUDED.images,
    characters = u.characters + EXCLUDED.characters, duration_ms = u.duration_ms + EXCLUDED.duration_ms,
    search_units = u.search_units + EXCLUDED.search_units, cost_nano = u.cost_nano + EXCLUDED.cost_nano,
    fee_nano = u.fee_nano + EXCLUDED.fee_nano,
    provider_cost_nano = u.provider_cost_nano + EXCLUDED.provider_cost_nano,
    quantities = coalesce(usage_add_quantities(u.quantities, EXCLUDED.quantities), u.quantities, EXCLUDED.quantities)
$$;
