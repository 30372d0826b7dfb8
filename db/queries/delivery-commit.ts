import type { AttemptRecord, DeliveryStatus } from "../../src/lib/webhook-record.ts";
import type { Database } from "../client.ts";
import type { InstanceIdentity } from "../ledger/commit-batch.ts";
import type { Effect, StatementEffect } from "../ledger/effects.ts";
import type { Lease } from "./actor-leases.ts";

/** What the owner of a webhook writes. Changes of many webhooks are written together. */
export type DeliveryChange =
  | {
      readonly kind: "attempt";
      readonly lease: Lease;
      /** Commits are shared out by it. */
      readonly organizationId: string;
      readonly outboxId: bigint;
      /** Attempts before this one. */
      readonly attemptCount: number;
      readonly status: DeliveryStatus;
      readonly attempt: AttemptRecord;
      readonly delayMs: number | null;
      readonly disablesVersion: bigint | undefined;
    }
  /** The time is written at which it has something to do again. */
  | { readonly kind: "rest"; readonly lease: Lease; readonly organizationId: string };

/** Written only by the batching writer of deliveries. */
export interface DeliveryEffect extends StatementEffect {
  readonly change: DeliveryChange;
}

const TABLES = ["deliveries", "webhook_queues", "webhooks", "changes"];

export function deliveryEffect(change: DeliveryChange): DeliveryEffect {
  return {
    kind: "statement",
    name: `delivery-${change.kind}`,
    tables: TABLES,
    events: [],
    change,
    run: () => Promise.reject(new Error("deliveries are written in batches of their own")),
  };
}

export function deliveryChange(effect: Effect): DeliveryChange {
  if (!("change" in effect)) throw new Error("only changes of deliveries can be written here");
  return (effect as DeliveryEffect).change;
}

/**
 * Writes the changes in one statement (function commit_deliveries). May be run again on them. Returns the
 * webhooks whose lease has passed on: nothing of theirs was written.
 */
export async function commitDeliveries(
  sql: Database,
  instance: InstanceIdentity,
  changes: readonly DeliveryChange[],
): Promise<ReadonlySet<string>> {
  const [row] = await sql<{ done: { lost: string[] } }[]>`
    SELECT commit_deliveries(${batchJson(instance, changes)}::text::jsonb) AS done`;
  return new Set(row!.done.lost);
}

function batchJson(instance: InstanceIdentity, changes: readonly DeliveryChange[]): string {
  const leases = new Map<string, bigint>();
  const attempts: unknown[] = [];
  const disabled: unknown[] = [];
  const rested = new Set<string>();
  for (const change of changes) {
    const { id, epoch } = change.lease;
    leases.set(id, epoch);
    if (change.kind === "rest") rested.add(id);
    else {
      attempts.push(attemptRow(change));
      if (change.delayMs !== null) rested.add(id);
      if (change.disablesVersion === undefined) continue;
      disabled.push({ w: id, v: change.disablesVersion.toString() });
      rested.add(id);
    }
  }
  return JSON.stringify({
    instance: instance.id,
    epoch: instance.epoch.toString(),
    leases: [...leases].map(([w, e]) => ({ w, e: e.toString() })),
    ...(attempts.length > 0 && { attempts }),
    ...(disabled.length > 0 && { disabled }),
    ...(rested.size > 0 && { rested: [...rested] }),
  });
}

function attemptRow(change: DeliveryChange & { kind: "attempt" }): Record<string, unknown> {
  return {
    w: change.lease.id,
    o: change.outboxId.toString(),
    n: change.attemptCount,
    s: change.status,
    a: change.attempt,
    d: change.delayMs,
  };
}
