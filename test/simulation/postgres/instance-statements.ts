import type { ModelContext } from "./model-context.ts";
import { rowsOf, written } from "./outcome.ts";
import type { Listed } from "./statement-text.ts";
import type { ModelledStatement } from "./statements.ts";
import type { InstanceRow } from "./tables.ts";
import type { Running, Transaction } from "./transaction.ts";

/** As instance_lease() has it. */
export const INSTANCE_LEASE_MS = 3_000;

/** Statements by which instances live and are declared dead: db/queries/instances.ts and changes.ts. */
export const instanceStatements: readonly ModelledStatement[] = [
  {
    name: "the database's time",
    begins: "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now_ms",
    look: ({ nowMs }) => rowsOf([{ now_ms: nowMs() }]),
  },
  {
    name: "end the earlier session of the lock",
    begins: "SELECT pg_terminate_backend(l.pid) FROM pg_locks l",
    look(_context, _transaction, _values, session) {
      return rowsOf(session.endOthersNamed(session.name).map(() => ({})));
    },
  },
  {
    name: "insert instance",
    begins: "INSERT INTO instances (id, epoch, is_alone) VALUES",
    *run({ tables, nowMs }, transaction, [id, epoch, is_alone]) {
      yield* tables.instances.insert(transaction, id, {
        id,
        epoch: BigInt(epoch),
        alive: true,
        is_alone,
        is_settled: false,
        heartbeat_at_ms: nowMs(),
      });
      return written(1);
    },
  },
  {
    name: "heartbeat",
    begins: "WITH beat AS ( UPDATE instances SET heartbeat_at = clock_timestamp() WHERE",
    *run({ tables, nowMs }, transaction, [id, epoch]) {
      const beaten = yield* tables.instances.update(transaction, id, (row) =>
        row.alive && row.epoch === BigInt(epoch) ? { ...row, heartbeat_at_ms: nowMs() } : undefined,
      );
      const others = [...tables.instances.all(transaction)].filter((row) => row.id !== id);
      const isSilent = (row: InstanceRow): boolean =>
        row.heartbeat_at_ms <= nowMs() - INSTANCE_LEASE_MS;
      const live = others.filter((row) => row.alive && !isSilent(row)).map((row) => row.id);
      return rowsOf([
        {
          is_alive: beaten !== undefined,
          live_ids: [...(beaten === undefined ? [] : [id as string]), ...live].sort(),
          has_orphaned_work: others.some((row) => !row.is_settled && (!row.alive || isSilent(row))),
        },
      ]);
    },
  },
  {
    name: "bury others",
    begins:
      "UPDATE instances SET alive = false WHERE id IN ( SELECT id FROM instances WHERE id <> ?",
    *run(context, transaction, [own]) {
      return written(yield* buryAll(context, transaction, ({ id }) => id !== own));
    },
  },
  {
    name: "bury the alone",
    begins:
      "UPDATE instances SET alive = false WHERE id IN ( SELECT id FROM instances WHERE is_alone",
    *run(context, transaction) {
      return written(yield* buryAll(context, transaction, ({ is_alone }) => is_alone));
    },
  },
  {
    name: "note settled",
    begins: "UPDATE instances i SET is_settled = true WHERE NOT alive AND NOT is_settled",
    *run({ tables }, transaction) {
      const busy = new Set([
        ...[...tables.attempts.all(transaction)].map((row) => row.instance_id),
        ...[...tables.holds.all(transaction)].map((row) => row.instance_id),
      ]);
      let count = 0;
      for (const { id, alive, is_settled } of [...tables.instances.all(transaction)]) {
        if (alive || is_settled || busy.has(id)) continue;
        yield* tables.instances.update(transaction, id, (row) => ({ ...row, is_settled: true }));
        count++;
      }
      return written(count);
    },
  },
  {
    name: "silent instances",
    begins: "SELECT id FROM instances WHERE id <> ? AND alive AND heartbeat_at <=",
    look({ tables, nowMs }, transaction, [own, limit]) {
      const ids: string[] = [];
      for (const { id } of [...tables.instances.all(transaction)].slice(0, limit)) {
        if (id === own || !tables.instances.tryLock(transaction, id, "update")) continue;
        const row = tables.instances.read(transaction, id);
        if (row?.alive && row.heartbeat_at_ms <= nowMs() - INSTANCE_LEASE_MS) ids.push(id);
      }
      return rowsOf(ids.map((id) => ({ id })));
    },
  },
  {
    name: "bury",
    begins: "UPDATE instances SET alive = false WHERE id = ANY (?::text[])",
    *run({ tables }, transaction, [listed]) {
      const ids = (listed as Listed).of as readonly string[];
      for (const id of ids) {
        yield* tables.instances.update(transaction, id, (row) => ({ ...row, alive: false }));
      }
      return written(ids.length);
    },
  },
  {
    name: "leases",
    begins: "SELECT kind, id, epoch FROM actor_leases",
    // No actor of a schedule has an owner.
    look() {
      return rowsOf([]);
    },
  },
  {
    name: "free idempotency keys",
    begins: "DELETE FROM idempotency_records",
    look() {
      return written(0);
    },
  },
  {
    name: "fail background responses",
    begins: "UPDATE background_responses b SET state = CASE WHEN r.is_kept",
    // No request of a schedule is for one.
    look() {
      return written(0);
    },
  },
  ...(["alone", "shared"] as const).map(
    (mode): ModelledStatement => ({
      name: "take advisory lock",
      begins: `SELECT pg_try_advisory_lock${mode === "shared" ? "_shared" : ""}(`,
      look(_context, _transaction, [lock], session) {
        return rowsOf([{ is_locked: session.tryAdvisoryLock(String(lock), mode) }]);
      },
    }),
  ),
  {
    name: "holds advisory lock",
    begins: "SELECT EXISTS ( SELECT 1 FROM pg_locks",
    look(_context, _transaction, [lock], session) {
      return rowsOf([{ is_held: session.advisoryLocks.has(String(lock)) }]);
    },
  },
  {
    name: "recent changes",
    begins: "SELECT id, kind, object_id FROM changes WHERE",
    look({ tables, nowMs }, transaction, [seconds]) {
      const since = nowMs() - Number(seconds) * 1_000;
      const rows = [...tables.changes.all(transaction)].filter((row) => row.changed_at_ms > since);
      return rowsOf(rows.sort((one, other) => Number(one.id - other.id)));
    },
  },
];

function* buryAll(
  { tables }: ModelContext,
  transaction: Transaction,
  isMeant: (row: InstanceRow) => boolean,
): Running<number> {
  let count = 0;
  for (const { id, alive } of [...tables.instances.all(transaction)].filter(isMeant)) {
    if (!alive) continue;
    const row = yield* tables.instances.lock(transaction, id, "update");
    if (row?.alive !== true) continue;
    yield* tables.instances.update(transaction, id, () => ({ ...row, alive: false }));
    count++;
  }
  return count;
}
