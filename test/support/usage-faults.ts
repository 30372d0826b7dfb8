import { type Database, inOneSnapshot } from "../../db/client.ts";
import {
  addUsageToGateway,
  addUsageTotals,
  organizationsOutsideGateway,
  organizationsWithNewUsage,
  organizationsWithoutTotals,
  rollUpUsage,
} from "../../db/queries/usage-roll-up.ts";

/** Adds everything that is there to the usage of its organization. */
export async function rollUpAll(sql: Database, most = 500): Promise<void> {
  for (;;) {
    const organizations = await organizationsWithNewUsage(sql, 1_000);
    const lacking = await organizationsWithoutTotals(sql, 1_000);
    const outside = await organizationsOutsideGateway(sql, 1_000);
    if (organizations.length + lacking.length + outside.length === 0) return;
    for (const organizationId of organizations) {
      while (await rollUpUsage(sql, organizationId, most));
    }
    for (const organizationId of lacking) while (await addUsageTotals(sql, organizationId));
    for (const organizationId of outside) while (await addUsageToGateway(sql, organizationId));
  }
}

/**
 * Where usage is not what the ledger and the failed requests have, of all that was there when this was called: by
 * hour, key, model and provider to the nano-USD and the token, and alike in all sums of the same requests.
 */
export async function usageFaults(sql: Database): Promise<Record<string, unknown>[]> {
  await rollUpAll(sql);
  return inOneSnapshot(sql, async (snapshot) => [
    ...(await snapshot`
      WITH added AS (
        SELECT t.* FROM transactions t JOIN usage_cursors c USING (organization_id)
        WHERE t.sequence <= c.sequence
      ), charged AS (
        SELECT organization_id, date_trunc('hour', created_at, 'UTC') AS hour, coalesce(key_id, '') AS key_id,
          usage_name(model) AS model, usage_name(provider) AS provider, -amount_nano AS nano,
          coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0)
            + coalesce(cached_prompt_tokens, 0) + coalesce(reasoning_tokens, 0) AS tokens,
          coalesce((quantities->>'images')::bigint, 0)
            + 1000 * coalesce((quantities->>'search_units')::bigint, 0) AS rest,
          coalesce((quantities->>'pages')::bigint, 0) AS pages
        FROM added WHERE type = 'usage'
        UNION ALL
        SELECT c.organization_id, date_trunc('hour', c.created_at, 'UTC'), coalesce(c.key_id, ''),
          usage_name(c.model), usage_name(c.provider), -r.amount_nano, 0, 0, 0
        FROM added r JOIN transactions c ON c.request_id = r.refunded_request_id
      ), ledger AS (
        SELECT organization_id, hour, key_id, model, provider, sum(nano) AS nano, sum(tokens) AS tokens,
          sum(rest) AS rest, sum(pages) AS pages
        FROM charged GROUP BY 1, 2, 3, 4, 5
      ), usage AS (
        SELECT organization_id, starts_at AS hour, key_id, model, provider, cost_nano AS nano,
          prompt_tokens + completion_tokens + cached_tokens + reasoning_tokens AS tokens,
          images + 1000 * search_units AS rest,
          coalesce((quantities->>'pages')::bigint, 0) AS pages
        FROM usage_rollups WHERE grain = 'key_hour' AND (quantities IS NOT NULL
          OR (cost_nano, prompt_tokens, completion_tokens, images, search_units) <> (0, 0, 0, 0, 0))
      )
      SELECT 'usage is not the ledger' AS fault, organization_id, hour, key_id, model, provider,
        l.nano::text AS ledger, u.nano::text AS usage
      FROM ledger l FULL JOIN usage u USING (organization_id, hour, key_id, model, provider)
      WHERE (coalesce(l.nano, 0), coalesce(l.tokens, 0), coalesce(l.rest, 0),
          coalesce(l.pages, 0))
        <> (coalesce(u.nano, 0), coalesce(u.tokens, 0), coalesce(u.rest, 0), coalesce(u.pages, 0))`),
    ...(await snapshot`
      WITH sums AS (
        SELECT grain AS source, organization_id, date_trunc('day', starts_at, 'UTC') AS day, model, provider,
          cost_nano, requests, errors, prompt_tokens, completion_tokens, search_units, quantities
        FROM usage_rollups
        UNION ALL
        SELECT 'users', organization_id, day::timestamp AT TIME ZONE 'UTC', model, provider,
          cost_nano, requests, errors, prompt_tokens, completion_tokens, search_units, quantities
        FROM usage_subjects WHERE kind IN ('user', 'other_user')
      ), totals AS (
        SELECT source, organization_id, day, model, provider, row(sum(cost_nano), sum(requests), sum(errors),
          sum(prompt_tokens), sum(completion_tokens), sum(search_units), usage_sum_quantities(quantities))::text AS figures
        FROM sums GROUP BY 1, 2, 3, 4, 5
      )
      SELECT 'sums differ' AS fault, organization_id, day, model, provider,
        array_to_string(array_agg(source || ' ' || figures), ', ') AS sums
      FROM totals GROUP BY 2, 3, 4, 5 HAVING count(*) <> 5 OR count(DISTINCT figures) <> 1`),
    ...(await snapshot`
      WITH detailed AS (
        SELECT organization_id, grain AS kind, starts_at, key_id AS value, ${sums(sql)}
        FROM usage_rollups WHERE grain <> 'key_hour' GROUP BY 1, 2, 3, 4
        UNION ALL
        SELECT organization_id, kind, day::timestamp AT TIME ZONE 'UTC', value, ${sums(sql)}
        FROM usage_subjects GROUP BY 1, 2, 3, 4
      ), totals AS (
        SELECT organization_id, kind, starts_at, value, ${sums(sql)} FROM usage_totals GROUP BY 1, 2, 3, 4
      )
      SELECT 'totals differ' AS fault, organization_id, kind, starts_at, value, d.figures, t.figures AS total
      FROM detailed d FULL JOIN totals t USING (organization_id, kind, starts_at, value)
      WHERE d.figures IS DISTINCT FROM t.figures`),
    ...(await snapshot`
      WITH charged AS (
        SELECT t.organization_id, t.request_id AS id, t.status >= 400 AS has_failed
        FROM transactions t JOIN usage_cursors c USING (organization_id)
        WHERE t.sequence <= c.sequence AND t.type = 'usage'
      ), failed AS (
        SELECT organization_id, id FROM failed_requests WHERE usage_state <> 0
      ), counted AS (
        SELECT coalesce(c.organization_id, f.organization_id) AS organization_id, count(*) AS requests,
          count(*) FILTER (WHERE c.has_failed OR f.id IS NOT NULL) AS errors
        FROM charged c FULL JOIN failed f ON f.id = c.id AND f.organization_id = c.organization_id
        GROUP BY 1
      ), usage AS (
        SELECT organization_id, sum(requests) AS requests, sum(errors) AS errors
        FROM usage_rollups WHERE grain = 'day' GROUP BY 1
      )
      SELECT 'requests are not counted once' AS fault, organization_id, c.requests::text AS requests,
        u.requests::text AS usage, c.errors::text AS errors, u.errors::text AS usage_errors
      FROM counted c FULL JOIN usage u USING (organization_id)
      WHERE (coalesce(c.requests, 0), coalesce(c.errors, 0)) <> (coalesce(u.requests, 0), coalesce(u.errors, 0))`),
    ...(await snapshot`
      WITH organizations AS (
        SELECT grain, starts_at, model, provider, ${sums(sql)} FROM usage_rollups
        WHERE grain IN ('hour', 'day') GROUP BY 1, 2, 3, 4
      ), gateway AS (
        SELECT grain, starts_at, model, provider, ${sums(sql)} FROM usage_gateway GROUP BY 1, 2, 3, 4
      )
      SELECT 'sums over all organizations differ' AS fault, grain, starts_at, model, provider,
        o.figures, g.figures AS gateway
      FROM organizations o FULL JOIN gateway g USING (grain, starts_at, model, provider)
      WHERE o.figures IS DISTINCT FROM g.figures`),
    ...(await snapshot`
      SELECT 'fees are not those of the ledger' AS fault, organization_id, l.fee::text, u.fee::text AS usage
      FROM (
        SELECT organization_id, sum(fee) AS fee FROM (
          SELECT organization_id, fee_nano AS fee FROM transactions WHERE type = 'usage'
          UNION ALL
          SELECT c.organization_id, -c.fee_nano
          FROM transactions r JOIN transactions c ON c.request_id = r.refunded_request_id
        ) recorded GROUP BY 1 HAVING count(*) = count(fee)
      ) l JOIN (
        SELECT organization_id, sum(fee_nano) AS fee FROM usage_rollups WHERE grain = 'day' GROUP BY 1
      ) u USING (organization_id)
      WHERE l.fee <> u.fee`),
  ]);
}

function sums(sql: Database) {
  return sql`row(sum(requests), sum(errors), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
    sum(reasoning_tokens), sum(images), sum(characters), sum(duration_ms), sum(search_units),
    sum(cost_nano), sum(fee_nano), sum(provider_cost_nano), usage_sum_quantities(quantities))::text AS figures`;
}
