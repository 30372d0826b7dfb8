/**
 * How many requests several instances hold and charge in one database, by how many instances there are, how
 * many organizations they share, and how long a commit takes to become durable:
 * `bun test/bench/many-instances.ts [seconds a row, 5 by default]`. The engines are those of the gateway, all in
 * this process; the database is a real one, which waits before each flush as a slower disk would. Needs /proc.
 */
import { readFileSync } from "node:fs";
import { systemClock } from "../../src/lib/clock.ts";
import { shareMoney } from "../contracts/clustered-money.ts";
import { figures, RICH, requestOf } from "../contracts/money/owned-money.ts";
import { openBooks, type Payer } from "../ledger/books.ts";

const SECONDS = Number(process.argv[2] ?? 5);
const WARMUP_SECONDS = 1;
const ANSWER_MS = 300;
const IN_FLIGHT = Number(process.argv[3] ?? 2_000);
const TICK_MS = 10;

const ROWS = [0, 2_000].flatMap((flushMicros) =>
  [1, 100, 2_000].flatMap((organizations) =>
    [1, 3, 10, 30].map((instances) => ({ flushMicros, organizations, instances })),
  ),
);

console.info(
  "flush | organizations | instances | requests/s | hold p50, p99 | units a commit | µs of Postgres a request",
);
for (const row of ROWS) console.info(await measure(row));
process.exit(0);

async function measure({ flushMicros, organizations, instances }: (typeof ROWS)[number]) {
  const books = await openBooks();
  const name = new URL(books.url).pathname.slice(1);
  // Each commit waits so long before its flush, whatever else is under way.
  await books.sql`ALTER DATABASE ${books.sql(name)} SET commit_delay = ${books.sql.unsafe(String(flushMicros))}`;
  await books.sql`ALTER DATABASE ${books.sql(name)} SET commit_siblings = 0`;
  const payers: Payer[] = [];
  for (let i = 0; i < organizations; i++) payers.push(await books.addOrganization(RICH));
  const shared: ReturnType<typeof shareMoney>[] = [];
  for (let i = 0; i < instances; i++) {
    shared.push(shareMoney(books, { clock: systemClock, instance: await books.addInstance() }));
  }
  const holdsMs: number[] = [];
  let [settled, isOver] = [0, false];
  let next = 0;
  const run = async (): Promise<void> => {
    while (!isOver) {
      const turn = next++;
      const { money } = shared[turn % instances]!;
      const startedMs = performance.now();
      const hold = await money.hold(requestOf(payers[(turn * 7919) % organizations]!, 1_000));
      holdsMs.push(performance.now() - startedMs);
      await Bun.sleep(ANSWER_MS);
      await money.settle(hold, figures(100n));
      settled++;
    }
  };
  const running = Array.from({ length: IN_FLIGHT }, run);
  await Bun.sleep(WARMUP_SECONDS * 1_000);
  const ticks = ledgerTicks(await ledgerSessions(books.sql));
  const sessions = await ledgerSessions(books.sql);
  [settled, holdsMs.length] = [0, 0];
  for (const { batches } of shared) batches.length = 0;
  const startedMs = performance.now();
  await Bun.sleep(SECONDS * 1_000);
  const rate = settled / ((performance.now() - startedMs) / 1_000);
  const micros = ((ledgerTicks(sessions) - ticks) * TICK_MS * 1_000) / settled;
  const units = shared.flatMap(({ batches }) => batches);
  const sorted = holdsMs.toSorted((one, other) => one - other);
  const share = (part: number) => sorted[Math.floor(sorted.length * part)]!.toFixed(1);
  isOver = true;
  await Promise.all(running);
  for (const { ledger } of shared) await ledger.close();
  await books.close();
  const unitsEach = units.reduce((sum, size) => sum + size, 0) / units.length;
  return [
    `${flushMicros / 1_000} ms`,
    organizations,
    instances,
    Math.round(rate),
    `${share(0.5)}, ${share(0.99)} ms`,
    unitsEach.toFixed(1),
    micros.toFixed(0),
  ].join(" | ");
}

async function ledgerSessions(sql: Awaited<ReturnType<typeof openBooks>>["sql"]) {
  const sessions = await sql<{ pid: number }[]>`
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'ledger%'`;
  return sessions.map(({ pid }) => pid);
}

/** Ticks of the processor that these sessions have taken. */
function ledgerTicks(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks;
}
