-- Computes usage_totals of the latest day before totals_since from the detailed sums, and moves totals_since to that
-- day. Returns true if there was such a day. It replaces what was added to that day since, so it may run at any time
-- and repeatedly.
--
-- Called by addUsageTotals in db/queries/usage-roll-up.ts.
CREATE OR REPLACE FUNCTION usage_add_totals(p_organization text) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_since timestamptz;
  v_day timestamptz;
BEGIN
  SELECT totals_since INTO v_since FROM usage_cursors WHERE organization_id = p_organization FOR UPDATE;
  SELECT max(starts_at) INTO v_day FROM usage_rollups
  WHERE organization_id = p_organization AND grain = 'day' AND starts_at < v_since;
  IF v_day IS NULL THEN
    UPDATE usage_cursors SET totals_since = '-infinity'
    WHERE organization_id = p_organization AND totals_since <> '-infinity';
    RETURN false;
  END IF;
  DELETE FROM usage_totals WHERE organization_id = p_organization
    AND kind IN ('hour', 'day', 'key_day', 'user', 'other_user', 'tag', 'other_tag')
    AND starts_at >= v_day AND starts_at < v_day + interval '24 hours';
  INSERT INTO usage_totals (organization_id, kind, starts_at, value, requests, errors, prompt_tokens,
    completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms, search_units,
    cost_nano, fee_nano, provider_cost_nano, quantities)
  SELECT p_organization, grain, starts_at, key_id, sum(requests), sum(errors), sum(prompt_tokens),
    sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images), sum(characters),
    sum(duration_ms), sum(search_units), sum(cost_nano), sum(fee_nano),
      sum(provider_cost_nano), usage_sum_quantities(quantities)
  FROM usage_rollups
  WHERE organization_id = p_organization AND grain IN ('hour', 'day', 'key_day')
    AND starts_at >= v_day AND starts_at < v_day + interval '24 hours'
  GROUP BY grain, starts_at, key_id
  UNION ALL
  SELECT p_organization, kind, v_day, value, sum(requests), sum(errors), sum(prompt_tokens),
    sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(images), sum(characters),
    sum(duration_ms), sum(search_units), sum(cost_nano), sum(fee_nano),
      sum(provider_cost_nano), usage_sum_quantities(quantities)
  FROM usage_subjects
  WHERE organization_id = p_organization AND kind IN ('user', 'other_user', 'tag', 'other_tag')
    AND day = (v_day AT TIME ZONE 'UTC')::date
  GROUP BY kind, value;
  UPDATE usage_cursors SET totals_since = v_day WHERE organization_id = p_organization;
  RETURN true;
END
$$;
