import { rowsOf, written } from "./outcome.ts";
import type { Listed } from "./statement-text.ts";
import type { ModelledStatement } from "./statements.ts";

/** As instance_lease() has it. */
export const INSTANCE_LEASE_MS = 3_000;

/** Statements by which instances live and are declared dead: db/queries/instances.ts and changes.ts. */
export const instanceStatements: readonly ModelledStatement[] = [
  {
    name: "insert instance",
    begins: "INSERT INTO instances (id, epoch) VALUES",
    *run({ tables, nowMs }, transaction, [id, epoch]) {
      yield* tables.instances.insert(transaction, id, {
        id,
        epoch: BigInt(epoch),
        alive: true,
        is_settled: false,
        heartbeat_at_ms: nowMs(),
      });
      return written(1);
    },
  },
  {
    name: "heartbeat",
    begins: "UPDATE instances SET heartbeat_at = clock_timestamp() WHERE",
    *run({ tables, nowMs }, transaction, [id, epoch]) {
      const beaten = yield* tables.instances.update(transaction, id, (row) =>
        row.alive && row.epoch === BigInt(epoch) ? { ...row, heartbeat_at_ms: nowMs() } : undefined,
      );
      return written(beaten === undefined ? 0 : 1);
    },
  },
  {
    name: "bury others",
    begins: "UPDATE instances SET alive = false WHERE id <> ? AND alive",
    *run({ tables }, transaction, [own]) {
      let count = 0;
      for (const { id, alive } of [...tables.instances.all(transaction)]) {
        if (id === own || !alive) continue;
        yield* tables.instances.update(transaction, id, (row) => ({ ...row, alive: false }));
        count++;
      }
      return written(count);
    },
  },
  {
    name: "silent instances",
    begins: "SELECT id FROM instances WHERE id <> ? AND alive AND heartbeat_at <=",
    *run({ tables, nowMs }, transaction, [own, limit]) {
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
    name: "free idempotency keys",
    begins: "DELETE FROM idempotency_records",
    *run() {
      return written(0);
    },
  },
  {
    name: "take advisory lock",
    begins: "SELECT pg_try_advisory_lock(",
    *run(_context, _transaction, [lock], session) {
      return rowsOf([{ taken: session.tryAdvisoryLock(String(lock)) }]);
    },
  },
  {
    name: "holds advisory lock",
    begins: "SELECT EXISTS ( SELECT 1 FROM pg_locks",
    *run(_context, _transaction, [lock], session) {
      return rowsOf([{ is_held: session.advisoryLocks.has(String(lock)) }]);
    },
  },
  {
    name: "recent changes",
    begins: "SELECT id, kind, object_id FROM changes WHERE",
    *run({ tables, nowMs }, transaction, [seconds]) {
      const since = nowMs() - Number(seconds) * 1_000;
      const rows = [...tables.changes.all(transaction)].filter((row) => row.changed_at_ms > since);
      return rowsOf(rows.sort((one, other) => Number(one.id - other.id)));
    },
  },
];
