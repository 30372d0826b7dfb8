/**
 * What a request costs in holds and charges, single-node and clustered, on the same shapes of load:
 * `bun test/bench/money-shapes.ts [requests]`. Prints requests and commits a second, microseconds of this
 * process and of the ledger's session a request. Needs /proc.
 */
import { readFileSync } from "node:fs";
import type { Database } from "../../db/client.ts";
import type { MoneyPort } from "../../src/billing/ledger/interface.ts";
import { openClusteredMoney } from "../contracts/clustered-money.ts";
import { figures, RICH, requestOf } from "../contracts/money/owned-money.ts";
import { openSingleNodeMoney } from "../contracts/single-node-money.ts";
import type { Payer } from "../ledger/books.ts";

const REQUESTS = Number(process.argv[2] ?? 20_000);
const TICK_MS = 10;

const SHAPES = [
  { name: "one key, 32 at once", keys: 1, atOnce: 32, answerMs: 0 },
  { name: "one key, 256 at once", keys: 1, atOnce: 256, answerMs: 0 },
  { name: "300 keys, 256 at once", keys: 300, atOnce: 256, answerMs: 0 },
  { name: "one key, 256 at once, answers take 20 ms", keys: 1, atOnce: 256, answerMs: 20 },
];

interface Opened {
  readonly money: MoneyPort;
  readonly sql: Database;
  addOrganization(creditNano: bigint): Promise<Payer>;
  commits(): number;
  close(): Promise<void>;
}

async function alone(): Promise<Opened> {
  const owned = await openSingleNodeMoney();
  return { ...owned, money: owned.money, commits: () => owned.batches.length };
}

async function several(): Promise<Opened> {
  const owned = await openClusteredMoney();
  return { ...owned, money: owned.money, commits: () => owned.batches.length };
}

for (const shape of SHAPES) {
  for (const [mode, open] of [
    ["single-node", alone],
    ["clustered", several],
  ] as const) {
    const opened = await open();
    const payers: Payer[] = [];
    for (let i = 0; i < shape.keys; i++) payers.push(await opened.addOrganization(RICH));
    const run = (requests: number) => drive(opened.money, payers, requests, shape);
    await run(REQUESTS / 10);
    const ticks = await ledgerTicks(opened.sql);
    const [commits, cpu] = [opened.commits(), process.cpuUsage()];
    const startedMs = performance.now();
    await run(REQUESTS);
    const seconds = (performance.now() - startedMs) / 1_000;
    const { user, system } = process.cpuUsage(cpu);
    const per = (value: number) => (value / REQUESTS).toFixed(1).padStart(7);
    console.info(
      `${shape.name.padEnd(42)} ${mode.padEnd(15)} ${Math.round(REQUESTS / seconds)
        .toString()
        .padStart(7)}/s ${Math.round((opened.commits() - commits) / seconds)
        .toString()
        .padStart(6)} commits/s, µs a request: ${per(user + system)} here, ${per(
        ((await ledgerTicks(opened.sql)) - ticks) * TICK_MS * 1_000,
      )} in the ledger's session`,
    );
    await opened.close();
  }
}
process.exit(0);

async function drive(
  money: MoneyPort,
  payers: readonly Payer[],
  requests: number,
  shape: (typeof SHAPES)[number],
): Promise<void> {
  let next = 0;
  const one = async (): Promise<void> => {
    while (next < requests) {
      const payer = payers[next++ % payers.length]!;
      const held = await money.hold(requestOf(payer, 1_000));
      if (shape.answerMs > 0) await Bun.sleep(shape.answerMs);
      await money.settle(held, figures(100n));
    }
  };
  await Promise.all(Array.from({ length: shape.atOnce }, one));
}

/** Ticks of the processor that the sessions of the ledger have taken. */
async function ledgerTicks(sql: Database): Promise<number> {
  const sessions = await sql<{ pid: number }[]>`
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'ledger%'`;
  let ticks = 0;
  for (const { pid } of sessions) {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks;
}
