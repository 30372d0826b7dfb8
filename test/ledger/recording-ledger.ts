import type { Database } from "../../db/client.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import { GroupCommit } from "../../db/ledger/group-commit.ts";
import type { AccountTotals, Settlement } from "../../db/ledger/rows.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { endEarlierSession } from "../../db/ledger/written-before.ts";

export interface RecordingLedger {
  readonly ledger: GroupCommit;
  /** Units of each batch. */
  readonly batches: number[];
  /** Requests whose charges were told to be durable, in order. */
  readonly told: string[];
  readonly totals: Map<string, AccountTotals>;
  readonly postedAbandoned: Settlement[];
  readonly fenced: { times: number };
  /** Requests that a guard of the database refused. */
  readonly violations: readonly string[];
}

/** A group commit, and what it told those around it. */
export function recordingLedger(
  sql: Database,
  instance: InstanceIdentity,
  onPostedAbandoned: (settlement: Settlement) => void = () => {},
): RecordingLedger {
  const batches: number[] = [];
  const told: string[] = [];
  const totals = new Map<string, AccountTotals>();
  const postedAbandoned: Settlement[] = [];
  const fenced = { times: 0 };
  const violations: string[] = [];
  const ledger = new GroupCommit({
    sql,
    instance,
    endEarlierTry: () => endEarlierSession(sql, sql.options.connection.application_name!),
    onFenced() {
      fenced.times++;
    },
    onGuardViolated: (_, requestIds) => void violations.push(...requestIds),
    onBatch: (units) => void batches.push(units),
  });
  ledger.subscribe({
    committed(settlements, committed) {
      for (const settlement of settlements) told.push(settlement.requestId);
      for (const [id, total] of committed) totals.set(id, total);
    },
    refund(settlement) {
      postedAbandoned.push(settlement);
      onPostedAbandoned(settlement);
    },
  });
  return { ledger, batches, told, totals, postedAbandoned, fenced, violations };
}

/** A statement that would leave a trace each time it were carried out. */
export function traceEffect(name: string): StatementEffect {
  return {
    kind: "statement",
    name,
    tables: ["outbox"],
    events: [],
    async run(sql) {
      await sql`INSERT INTO outbox (event_id, organization_id, type, data)
        VALUES (gen_random_uuid()::text, 'trace', ${name}, '{}')`;
    },
  };
}

/** Traces that were left, in the order of their writing. */
export async function tracesOf(sql: Database): Promise<string[]> {
  const rows = await sql<{ type: string }[]>`
    SELECT type FROM outbox WHERE organization_id = 'trace' ORDER BY id`;
  return rows.map((row) => row.type);
}

/** A statement that the database refuses. */
export function refusedEffect(name: string): StatementEffect {
  return {
    kind: "statement",
    name,
    tables: ["outbox"],
    events: [],
    async run(sql) {
      await sql`INSERT INTO outbox (event_id, organization_id, type, data)
        VALUES (${name}, NULL, 'refused', '{}')`;
    },
  };
}
