import type { Database } from "../client.ts";

export interface DueWebhook {
  readonly id: string;
  readonly organizationId: string;
}

export interface DueWebhooks {
  readonly webhooks: readonly DueWebhook[];
  /** The organization to go on behind; undefined where all those behind `after` were looked at. */
  readonly last: string | undefined;
}

export interface DueLook {
  /** Organizations behind this one are looked at, in the order of their ids. */
  readonly after: string;
  readonly maxOrganizations: number;
  /** Webhooks, shared out among the organizations. */
  readonly limit: number;
}

/** Webhooks whose first delivery is due and that nobody alive acts for; of each organization the longest due. */
export async function findDueWebhooks(sql: Database, look: DueLook): Promise<DueWebhooks> {
  const rows = await sql<{ organization_id: string; webhook_id: string | null }[]>`
    WITH RECURSIVE waiting AS (
      (SELECT organization_id FROM webhook_queues
      WHERE due_at IS NOT NULL AND organization_id > ${look.after} ORDER BY organization_id LIMIT 1)
      UNION ALL
      SELECT (SELECT q.organization_id FROM webhook_queues q
        WHERE q.due_at IS NOT NULL AND q.organization_id > w.organization_id ORDER BY q.organization_id LIMIT 1)
      FROM waiting w WHERE w.organization_id IS NOT NULL
    ), looked_at AS MATERIALIZED (
      SELECT organization_id FROM waiting WHERE organization_id IS NOT NULL LIMIT ${look.maxOrganizations}
    )
    SELECT l.organization_id, d.webhook_id FROM looked_at l LEFT JOIN LATERAL (
      SELECT q.webhook_id FROM webhook_queues q
      WHERE q.organization_id = l.organization_id AND q.due_at <= statement_timestamp() AND NOT EXISTS (
        SELECT 1 FROM owned_actors a WHERE a.kind = 'webhook' AND a.id = q.webhook_id)
      ORDER BY q.due_at LIMIT (SELECT greatest(1, ${look.limit} / count(*)) FROM looked_at)
    ) d ON true ORDER BY l.organization_id`;
  const organizations = new Set(rows.map((row) => row.organization_id));
  return {
    webhooks: rows.flatMap(({ webhook_id: id, organization_id: organizationId }) =>
      id === null ? [] : { id, organizationId },
    ),
    last: organizations.size < look.maxOrganizations ? undefined : rows.at(-1)!.organization_id,
  };
}

/** Those of these webhooks whose first delivery is due, and the live instance that acts for each. */
export async function findDueAmong(
  sql: Database,
  ids: readonly string[],
): Promise<(DueWebhook & { readonly owner: string | null })[]> {
  const rows = await sql<{ webhook_id: string; organization_id: string; owner: string | null }[]>`
    SELECT q.webhook_id, q.organization_id, i.id AS owner FROM webhook_queues q
    LEFT JOIN actor_leases l ON l.kind = 'webhook' AND l.id = q.webhook_id
    LEFT JOIN live_instances i ON i.id = l.instance_id AND i.epoch = l.instance_epoch
    WHERE q.webhook_id = ANY (${sql.array([...ids])}::text[]) AND q.due_at <= statement_timestamp()`;
  return rows.map(({ webhook_id: id, organization_id: organizationId, owner }) => ({
    id,
    organizationId,
    owner,
  }));
}
