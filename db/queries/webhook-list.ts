import type { WebhookRecord } from "../../src/lib/webhook-record.ts";
import type { Database } from "../client.ts";
import { inOneSnapshot } from "../one-snapshot.ts";
import { type WebhookRow, webhookRecord } from "./webhook-rows.ts";

/** Webhooks of an organization, newest first, and how many there are. */
export function listWebhooks(
  sql: Database,
  page: { readonly organizationId: string; readonly limit: number; readonly offset: number },
): Promise<{ webhooks: WebhookRecord[]; total: number }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM webhooks WHERE organization_id = ${page.organizationId}`;
    const rows = await snapshot<WebhookRow[]>`
      SELECT * FROM webhooks WHERE organization_id = ${page.organizationId}
      ORDER BY created_at DESC, id DESC LIMIT ${page.limit} OFFSET ${page.offset}`;
    return { webhooks: rows.map(webhookRecord), total: Number(count!.total) };
  });
}

export interface SealedSecrets {
  readonly secret: Uint8Array;
  readonly previousSecret: Uint8Array | null;
  readonly previousSecretUntilMs: number | null;
}

export interface FoundWebhook {
  readonly record: WebhookRecord;
  readonly sealed: SealedSecrets;
  /** What ids of its deliveries are made with. */
  readonly deliveryIds: { readonly key: string; readonly plainUpTo: bigint };
}

/** One webhook of an organization, with its secrets as they are stored. */
export async function findWebhook(
  sql: Database,
  { id, organizationId }: { readonly id: string; readonly organizationId: string },
): Promise<FoundWebhook | undefined> {
  const [row] = await sql<WebhookRow[]>`
    SELECT * FROM webhooks WHERE id = ${id} AND organization_id = ${organizationId}`;
  return (
    row && {
      record: webhookRecord(row),
      sealed: sealedSecrets(row),
      deliveryIds: { key: row.delivery_id_key, plainUpTo: row.plain_delivery_ids_up_to },
    }
  );
}

export function sealedSecrets(row: WebhookRow): SealedSecrets {
  return {
    secret: row.secret,
    previousSecret: row.previous_secret,
    previousSecretUntilMs: row.previous_secret_until?.getTime() ?? null,
  };
}
