import { PostgresOwnership } from "../../actors/runtime/ownership.ts";
import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { newId } from "../../src/lib/ids.ts";

/** An instance that owns actors, in the hands of a test: alive until its row is aged. */
export interface TestOwner {
  readonly instance: InstanceIdentity;
  readonly ownership: PostgresOwnership;
  /** What it believes of its own heartbeat. */
  withinLease: boolean;
  /** Whether it goes by the heartbeats of others. */
  judges: boolean;
  /** `kind id` of each lease it was told to have lost. */
  readonly lost: string[];
}

export async function addOwner(sql: Database): Promise<TestOwner> {
  const instance = { id: newId("ins"), epoch: 7n };
  await insertInstance(sql, instance);
  const lost: string[] = [];
  const ownership = new PostgresOwnership({
    sql,
    instance,
    instanceLease: {
      get isCurrent() {
        return owner.withinLease;
      },
      get mayJudgeOthers() {
        return owner.judges;
      },
    },
  });
  const owner: TestOwner = { instance, ownership, withinLease: true, judges: true, lost };
  ownership.onLost(({ kind, id, epoch }) => lost.push(`${kind} ${id} ${epoch}`));
  return owner;
}

/** Puts the last heartbeat of an instance into the past, by the clock of the database. */
export async function age(sql: Database, { instance }: TestOwner, byMs: number): Promise<void> {
  await sql`UPDATE instances SET heartbeat_at = clock_timestamp() - make_interval(secs => ${byMs / 1_000})
    WHERE id = ${instance.id}`;
}
