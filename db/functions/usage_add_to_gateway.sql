-- Adds the latest day before gateway_since of an organization's usage to the sums over all organizations, and moves
-- gateway_since to that day. Returns true if there was such a day. The rows of the day get their fees and provider costs
-- from the current fee of the organization, because the charges of earlier versions did not record theirs. Rows are
-- inserted in the order of their keys, so that callers for several organizations do not deadlock.
--
-- Called by usage_roll_up, and by addUsageToGateway in db/queries/usage-roll-up.ts.
CREATE OR REPLACE FUNCTION usage_add_to_gateway(p_organization text) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_since timestamptz;
  v_day timestamptz;
  v_basis_points integer;
  v_plan text;
BEGIN
  SELECT gateway_since INTO v_since FROM usage_cursors WHERE organization_id = p_organization FOR UPDATE;
  SELECT max(starts_at) INTO v_day FROM usage_rollups
  WHERE organization_id = p_organization AND grain = 'day' AND starts_at < v_since;
  IF v_day IS NULL THEN
    UPDATE usage_cursors SET gateway_since = '-infinity'
    WHERE organization_id = p_organization AND gateway_since <> '-infinity';
    RETURN false;
  END IF;
  SELECT fee_basis_points, plan INTO v_basis_points, v_plan FROM organizations WHERE id = p_organization;

  -- The fees of the finest sums, which the others add up.
  UPDATE usage_rollups SET fee_nano = usage_fee(cost_nano, v_basis_points, v_plan),
    provider_cost_nano = cost_nano - usage_fee(cost_nano, v_basis_points, v_plan)
  WHERE organization_id = p_organization AND grain = 'key_hour'
    AND starts_at >= v_day AND starts_at < v_day + interval '24 hours';
  UPDATE usage_rollups u SET fee_nano = s.fee_nano, provider_cost_nano = s.provider_cost_nano
  FROM (
    SELECT g.grain, g.key_id, g.starts_at, model, provider, sum(fee_nano) AS fee_nano,
      sum(provider_cost_nano) AS provider_cost_nano
    FROM usage_rollups k CROSS JOIN LATERAL (
      VALUES ('hour', '', k.starts_at), ('day', '', v_day), ('key_day', k.key_id, v_day)
    ) AS g (grain, key_id, starts_at)
    WHERE organization_id = p_organization AND k.grain = 'key_hour'
      AND k.starts_at >= v_day AND k.starts_at < v_day + interval '24 hours'
    GROUP BY g.grain, g.key_id, g.starts_at, model, provider
  ) s
  WHERE u.organization_id = p_organization AND u.grain = s.grain AND u.key_id = s.key_id
    AND u.starts_at = s.starts_at AND u.model = s.model AND u.provider = s.provider;
  UPDATE usage_subjects SET fee_nano = usage_fee(cost_nano, v_basis_points, v_plan),
    provider_cost_nano = cost_nano - usage_fee(cost_nano, v_basis_points, v_plan)
  WHERE organization_id = p_organization AND kind IN ('user', 'other_user', 'tag', 'other_tag')
    AND day = (v_day AT TIME ZONE 'UTC')::date;
  UPDATE usage_totals u SET fee_nano = s.fee_nano, provider_cost_nano = s.provider_cost_nano
  FROM (
    SELECT grain AS kind, starts_at, key_id AS value, sum(fee_nano) AS fee_nano,
      sum(provider_cost_nano) AS provider_cost_nano
    FROM usage_rollups
    WHERE organization_id = p_organization AND grain IN ('hour', 'day', 'key_day')
      AND starts_at >= v_day AND starts_at < v_day + interval '24 hours'
    GROUP BY grain, starts_at, key_id
    UNION ALL
    SELECT kind, v_day, value, sum(fee_nano), sum(provider_cost_nano) FROM usage_subjects
    WHERE organization_id = p_organization AND kind IN ('user', 'other_user', 'tag', 'other_tag')
      AND day = (v_day AT TIME ZONE 'UTC')::date
    GROUP BY kind, value
  ) s
  WHERE u.organization_id = p_organization AND u.kind = s.kind AND u.starts_at = s.starts_at
    AND u.value = s.value;

  INSERT INTO usage_gateway AS u (grain, starts_at, model, provider, requests, errors, prompt_tokens,
    completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms, search_units,
    cost_nano, fee_nano, provider_cost_nano, quantities)
  SELECT grain, starts_at, model, provider, requests, errors, prompt_tokens, completion_tokens, cached_tokens,
    reasoning_tokens, images, characters, duration_ms, search_units, cost_nano, fee_nano, provider_cost_nano,
    quantities
  FROM usage_rollups
  WHERE organization_id = p_organization AND grain IN ('hour', 'day')
    AND starts_at >= v_day AND starts_at < v_day + interval '24 hours'
  ORDER BY grain, starts_at, model, provider
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
    quantities = coalesce(usage_add_quantities(u.quantities, EXCLUDED.quantities), u.quantities, EXCLUDED.quantities);

  INSERT INTO usage_gateway_latencies AS u (grain, starts_at, model, provider, bucket, requests)
  SELECT g.grain, g.starts_at, '', '', bucket, sum(requests)
  FROM usage_latencies CROSS JOIN LATERAL (VALUES ('hour', hour), ('day', v_day)) AS g (grain, starts_at)
  WHERE organization_id = p_organization AND measure = 'total' AND hour >= v_day
    AND hour < v_day + interval '24 hours'
  GROUP BY g.grain, g.starts_at, bucket
  ORDER BY g.grain, g.starts_at, bucket
  ON CONFLICT (grain, starts_at, model, provider, bucket) DO UPDATE SET
    requests = u.requests + EXCLUDED.requests;

  UPDATE usage_cursors SET gateway_since = v_day WHERE organization_id = p_organization;
  RETURN true;
END
$$;
