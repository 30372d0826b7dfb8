import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database, sqlState } from "../../db/client.ts";
import { postCredit, refundCharge } from "../../db/ledger/credits.ts";
import {
  type ExchangeBatch,
  type ExchangeOutcome,
  exchangeLedgerBatch,
} from "../../db/ledger/exchange-batch.ts";
import { commitLedgerBatch, type InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { settleDead } from "../../db/ledger/settle-dead.ts";
import { deleteKeyEffect, updateKeyEffect } from "../../db/queries/api-keys.ts";
import { budgetExhaustedEffect } from "../../db/queries/budget-events.ts";
import { setCreditLimit } from "../../db/queries/credit-commands.ts";
import {
  declareOthersDead,
  heartbeat,
  insertInstance,
  noteSettled,
} from "../../db/queries/instances.ts";
import { changeSubjectBudget } from "../../db/queries/subject-budgets.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { copyRows, rowsOfModel, rowsOfReal } from "./compared-rows.ts";
import { directDatabase } from "./direct-database.ts";
import { firstRows } from "./first-rows.ts";
import type { Payers } from "./plan.ts";
import { ALL_GUARDS, type ModelContext } from "./postgres/model-context.ts";
import { createTables, type Tables } from "./postgres/tables.ts";
import { RandomBatches } from "./random-batches.ts";
import { SeededRandom } from "./seeded-random.ts";

/*
 * The simulation is worth what its model is worth. The same batches go through the product's own code to
 * the SQL functions and to the model of them; what comes back and what is written must be the same.
 * GATEWAY_SIM_CONFORMANCE_ROUNDS: how many times over; GATEWAY_SIM_CONFORMANCE_SEED: from which seed.
 */
const ROUNDS = Number(process.env.GATEWAY_SIM_CONFORMANCE_ROUNDS ?? 20);
const STEPS = 60;
const SEED = Number(process.env.GATEWAY_SIM_CONFORMANCE_SEED ?? 1);
const TIMEOUT_MS = 600_000;

const payers: Payers = {
  organizations: [
    { id: "org_0", creditNano: 20_000, creditLimitNano: 0 },
    { id: "org_1", creditNano: 3_000, creditLimitNano: 2_000 },
    { id: "org_2", creditNano: 500, creditLimitNano: null },
    // A little above the threshold of credits.low, which is 1 USD.
    { id: "org_3", creditNano: 1_000_002_000, creditLimitNano: 0 },
  ],
  keys: [
    { id: "key_0", organizationId: "org_0", dailyBudgetNano: 4_000, monthlyBudgetNano: null },
    { id: "key_1", organizationId: "org_0", dailyBudgetNano: null, monthlyBudgetNano: 6_000 },
    { id: "key_2", organizationId: "org_1", dailyBudgetNano: 0, monthlyBudgetNano: 900 },
    { id: "key_3", organizationId: "org_1", dailyBudgetNano: null, monthlyBudgetNano: null },
    { id: "key_4", organizationId: "org_2", dailyBudgetNano: null, monthlyBudgetNano: null },
    { id: "key_5", organizationId: "org_2", dailyBudgetNano: 3_000, monthlyBudgetNano: null },
    { id: "key_6", organizationId: "org_3", dailyBudgetNano: null, monthlyBudgetNano: null },
  ],
  subjects: [
    { id: "bud_0", organizationId: "org_0", dailyBudgetNano: 3_000, monthlyBudgetNano: null },
    { id: "bud_1", organizationId: "org_0", dailyBudgetNano: null, monthlyBudgetNano: 5_000 },
    { id: "bud_2", organizationId: "org_2", dailyBudgetNano: 2_000, monthlyBudgetNano: 2_500 },
  ],
};
const instance: InstanceIdentity = { id: "ins_one", epoch: 1n };
const reaper: InstanceIdentity = { id: "ins_two", epoch: 2n };

/** Verdicts on holds, states with which a batch is refused, and what becomes of a refund. */
const KINDS = [
  "granted",
  "lowered",
  "extended",
  "gone",
  "blocked",
  "revoked",
  "short",
  "23502",
  "23505",
  "GW001",
  "GW002",
  "refunded",
  "not refunded",
  "credits.low",
];
const seen = new Map<string, number>();

let database: TestDatabase;
let real: Database;
beforeAll(async () => {
  database = await createTestDatabase();
  real = connectDatabase(database, { poolSize: 1, applicationName: "conformance" });
});
afterAll(async () => {
  await real.end({ timeout: 1 });
  await database.drop();
});

test(
  "the model answers and writes what the SQL functions answer and write",
  async () => {
    for (let round = 0; round < ROUNDS; round++) await compareRound(new SeededRandom(SEED + round));
    // Everything that can come back has come back.
    for (const kind of KINDS)
      expect({ kind, count: seen.get(kind) ?? 0 }).not.toEqual({ kind, count: 0 });
  },
  TIMEOUT_MS,
);

async function compareRound(random: SeededRandom): Promise<void> {
  await real`TRUNCATE organizations, api_keys, accounts, transactions, charge_refunds, holds, attempts, outbox,
    instances CASCADE`;
  const { tables, context } = newModel();
  const model = directDatabase(context);
  firstRows(context, payers).commit();
  await copyRows(real, tables);
  const batches = new RandomBatches(random, payers);
  const both = (work: (sql: Database) => Promise<unknown>) => compare(tables, model, work);
  for (const one of [instance, reaper]) await both((sql) => insertInstance(sql, one));
  for (let count = 1; count <= STEPS; count++) {
    await both(stepOf(random, batches.next(), count));
    if (random.chance(0.2)) await both(refundOf(random, tables, count));
  }
  await both((sql) => declareOthersDead(sql, reaper.id));
  await both((sql) => exchangeLedgerBatch(sql, instance, batches.next()));
  await both((sql) => heartbeat(sql, instance));
  await both(async (sql) => {
    const { settled, released } = await settleDead(sql, reaper);
    await noteSettled(sql);
    return { settled, released };
  });
}

function newModel(): { tables: Tables; context: ModelContext } {
  const tables = createTables();
  let ids = 0;
  return {
    tables,
    context: {
      tables,
      guards: ALL_GUARDS,
      nowMs: () => Date.now(),
      nextId: () => ++ids,
      isInterrupted: () => false,
      shuffled: (items) => [...items],
    },
  };
}

/** What is done next: mostly a batch, at times something that changes what batches are decided by. */
function stepOf(
  random: SeededRandom,
  batch: ExchangeBatch,
  count: number,
): (sql: Database) => Promise<unknown> {
  const kind = random.next();
  const { id: keyId, organizationId } = random.pick(payers.keys);
  const periods = [`day:${keyId}:2026-03-14`, `month:${keyId}:2026-03-01`];
  const event = { eventId: `evt_${count}`, organizationId, type: "key.updated" as const, data: {} };
  if (kind < 0.3) return (sql) => commitLedgerBatch(sql, instance, { ...batch });
  if (kind < 0.85) {
    return async (sql) => ({ ...(await exchangeLedgerBatch(sql, instance, batch)), batch });
  }
  if (kind < 0.87) {
    const limit = random.pick([0n, 500n, 5_000n, null]);
    return (sql) => sql.begin((transaction) => setCreditLimit(transaction, organizationId, limit));
  }
  if (kind < 0.91) {
    const amountNano = BigInt(random.integer(-6_000, 4_000));
    const type = amountNano > 2_000n ? ("topup" as const) : ("adjustment" as const);
    const entry = { organizationId, type, amountNano, description: "d" };
    return async (sql) => {
      const posted = await postCredit(sql, { transactionId: `txn_c${count}`, ...entry });
      return posted && { ...posted, createdAtMs: 0 };
    };
  }
  if (kind < 0.93) {
    const nano = () => random.pick([null, BigInt(random.integer(0, 4_000))]);
    const { id, organizationId: of } = random.pick(payers.subjects);
    const place = { organizationId: of, day: "2026-03-14", monthStart: "2026-03-01" };
    const limits = random.pick([{ dailyBudgetNano: nano() }, { monthlyBudgetNano: nano() }]);
    return async (sql) => {
      const changedBudget = await changeSubjectBudget(sql, place, id, limits);
      return { ...changedBudget, createdAtMs: 0 };
    };
  }
  const changed = random.pick([
    { dailyBudgetNano: BigInt(random.integer(0, 5_000)) },
    { monthlyBudgetNano: null },
    { monthlyBudgetNano: BigInt(random.integer(0, 5_000)) },
    { isActive: random.chance(0.6) },
  ]);
  const effect =
    kind < 0.96
      ? updateKeyEffect(keyId, changed, periods, event)
      : kind < 0.995
        ? budgetExhaustedEffect([
            { id: periods[0]!, kind: "day", organizationId, keyId, periodStart: "2026-03-14" },
          ])
        : deleteKeyEffect(keyId, event);
  return (sql) => sql.begin((transaction) => effect.run(transaction));
}

/** Mostly of a charge: also one that was given back before, and one of nothing. */
function refundOf(
  random: SeededRandom,
  tables: Tables,
  count: number,
): (sql: Database) => Promise<unknown> {
  const charges = [...tables.transactions.all()].filter(({ type }) => type === "usage");
  const charge = charges.length > 0 && random.chance(0.9) ? random.pick(charges) : undefined;
  const keyId = random.chance(0.9) ? charge?.key_id : "key_0";
  const subject = random.chance(0.5) ? random.pick(payers.subjects).id : undefined;
  return (sql) =>
    refundCharge(sql, {
      transactionId: `txn_r${count}`,
      requestId: charge?.request_id ?? "req_none",
      dayAccount: `day:${keyId}:2026-03-14`,
      monthAccount: `month:${keyId}:2026-03-01`,
      subjectAccounts: subject === undefined ? undefined : [`subject_day:${subject}:2026-03-14`],
      description: "Refund",
    });
}

/** Does it to both: how it ends must be the same, as must be every row. */
async function compare(
  tables: Tables,
  model: Database,
  work: (sql: Database) => Promise<unknown>,
): Promise<void> {
  const expected = await outcomeOf(work(real));
  const modelled = await outcomeOf(work(model));
  // No promise says which of two faulty rows of a batch is refused first.
  const areRefused = typeof expected === "string" && typeof modelled === "string";
  if (!(areRefused && [expected, modelled].every((state) => state.startsWith("235")))) {
    expect(modelled).toEqual(expected);
  }
  expect(rowsOfModel(tables)).toEqual(await rowsOfReal(real));
  for (const kind of kindsOf(expected)) seen.set(kind, (seen.get(kind) ?? 0) + 1);
  const lows = [...tables.outbox.all()].filter(({ type }) => type === "credits.low").length;
  seen.set("credits.low", (seen.get("credits.low") ?? 0) + lows);
}

function kindsOf(outcome: unknown): string[] {
  if (typeof outcome === "string") return [outcome];
  const { answer } = outcome as { answer: unknown };
  if (typeof answer === "boolean") return [answer ? "refunded" : "not refunded"];
  const { verdicts, batch } = (answer ?? {}) as Partial<
    ExchangeOutcome & { readonly batch: ExchangeBatch }
  >;
  return (batch?.holds ?? []).map(({ requestId, fullNano, extends: extending }) => {
    const verdict = verdicts!.get(requestId)!;
    if (verdict.kind !== "granted") return verdict.kind;
    if (verdict.holdNano < fullNano) return "lowered";
    return extending === true ? "extended" : "granted";
  });
}

async function outcomeOf(work: Promise<unknown>): Promise<unknown> {
  try {
    return { answer: await work };
  } catch (error) {
    const state = sqlState(error);
    if (state === undefined) throw error;
    return state;
  }
}
