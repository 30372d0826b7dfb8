import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { GatewayError } from "../../src/lib/errors.ts";
import { figures, requestOf } from "../contracts/money/owned-money.ts";
import { until } from "../support/until.ts";
import { holdsOf, type Payer } from "./books.ts";
import { openSharedGrounds, type Shared, type SharedGrounds } from "./shared-grounds.ts";

/** Of requests whose hold is many times their charge; 30 shows the same at the pace of a busy key. */
const ARRIVAL_SECONDS = Number(process.env.GATEWAY_TEST_ARRIVAL_SECONDS ?? 2);
const TIMEOUT_MS = 60_000 + ARRIVAL_SECONDS * 1_000;
const REQUESTS = 2_000;
const PAID_REQUESTS = 200;
/** An answer takes that long. */
const ANSWER_MS = 20;

let grounds: SharedGrounds;
let three: Shared[];
beforeAll(async () => {
  grounds = await openSharedGrounds();
  three = [];
  for (let i = 0; i < 3; i++) three.push(await grounds.open());
});
afterAll(() => grounds.close());

interface Flood {
  readonly payer: Payer;
  readonly tokens: number;
  readonly isLimitExplicit: boolean;
  readonly chargeNano: bigint;
  readonly spreadMs: number;
}

/** Spreads the requests over the instances. Returns how many were answered, and why the others were not. */
async function flood(options: Flood): Promise<{ answered: number; refusals: Map<string, number> }> {
  const { payer, tokens, isLimitExplicit, chargeNano, spreadMs } = options;
  const refusals = new Map<string, number>();
  let answered = 0;
  await Promise.all(
    Array.from({ length: REQUESTS }, async (_, i) => {
      if (spreadMs > 0) await Bun.sleep((i * spreadMs) / REQUESTS);
      const { money } = three[i % three.length]!;
      const request = requestOf(payer, tokens, { isLimitExplicit });
      try {
        const held = await money.hold(request);
        await Bun.sleep(ANSWER_MS);
        await money.settle(held, figures(chargeNano > held.holdNano ? held.holdNano : chargeNano));
        answered++;
      } catch (error) {
        const { code } = error as GatewayError;
        refusals.set(code, (refusals.get(code) ?? 0) + 1);
      }
    }),
  );
  return { answered, refusals };
}

/** Each instance has seen the accounts before: none of them waits for another to make their rows. */
async function known(payer: Payer): Promise<Payer> {
  for (const { money } of three) money.release(await money.hold(requestOf(payer, 1)));
  await until("it is given back", async () => (await holdsOf(grounds.books.sql)).length === 0);
  return payer;
}

const CHARGE = 1_000n;
const ROOMY_CHARGE = 512n;

describe.each<[string, (nano: bigint) => Promise<Payer>, string]>([
  ["budget", (nano) => grounds.payerWith(nano), "budget_exhausted"],
  ["balance", (nano) => grounds.books.addOrganization(nano), "insufficient_credits"],
])("three instances and a %s that pays for 200 of 2,000 requests", (_, payerWith, code) => {
  test(
    "spend it to the last and not beyond where each holds what it costs",
    async () => {
      const limit = CHARGE * BigInt(PAID_REQUESTS);
      const payer = await known(await payerWith(limit));
      const { answered, refusals } = await flood({
        payer,
        tokens: Number(CHARGE),
        isLimitExplicit: true,
        chargeNano: CHARGE,
        spreadMs: 0,
      });
      console.info(`${answered} of ${PAID_REQUESTS} that are paid for were answered`);
      expect(answered).toBeWithin(195, PAID_REQUESTS + 1);
      expect([...refusals]).toEqual([[code, REQUESTS - answered]]);
      expect(await grounds.spentOf(payer)).toBe(CHARGE * BigInt(answered));
      await grounds.expectWhole(...three);
    },
    TIMEOUT_MS,
  );

  test(
    `answer at least 180 where each holds twenty times what it costs, arriving over ${ARRIVAL_SECONDS} s`,
    async () => {
      const limit = ROOMY_CHARGE * BigInt(PAID_REQUESTS);
      const payer = await known(await payerWith(limit));
      const { answered, refusals } = await flood({
        payer,
        tokens: 20 * Number(ROOMY_CHARGE),
        isLimitExplicit: false,
        chargeNano: ROOMY_CHARGE,
        spreadMs: ARRIVAL_SECONDS * 1_000,
      });
      const spent = await grounds.spentOf(payer);
      console.info(`${answered} were answered; ${limit - spent} of ${limit} nano-USD are left`);
      expect(answered).toBeGreaterThanOrEqual(180);
      expect([...refusals]).toEqual([[code, REQUESTS - answered]]);
      expect(spent).toBeLessThanOrEqual(limit);
      // What is left pays for less than an answer that is worth one.
      expect(limit - spent).toBeLessThan(256n);
      await grounds.expectWhole(...three);
    },
    TIMEOUT_MS,
  );
});
