import { describe, expect, test } from "bun:test";
import type { GatewayError } from "../../../src/lib/errors.ts";
import type { Payer } from "../../ledger/books.ts";
import { codeOf, type MoneyHands, RICH, requestOf } from "./owned-money.ts";

const MAX_WAIT_MS = 2_000;
const MAX_WAITING = 4_096;

/** Requests that are short only because of others. */
export function describeWaiting(hands: MoneyHands): void {
  describe("a request that is short only because of others", () => {
    test("waits for their holds to end, and is served first come first served", async () => {
      const payer = await hands.payerOf(1_000n);
      const first = await hands.hold(requestOf(payer, 1_000));
      const served: string[] = [];
      const waiting = ["a", "b", "c", "d"].map(async (name, i) => {
        const held = await hands.hold(requestOf(payer, i === 0 ? 900 : 300));
        served.push(name);
        return held;
      });
      expect(await hands.isWaiting(waiting[0]!)).toBe(true);
      hands.money.release(first);
      const a = await waiting[0]!;
      // Behind the first there would be room for none of the others, though one of them is small.
      expect(await hands.isWaiting(waiting[1]!)).toBe(true);
      expect(served).toEqual(["a"]);
      hands.money.release(a);
      for (const held of await Promise.all(waiting.slice(1))) hands.money.release(held);
      expect(served).toEqual(["a", "b", "c", "d"]);
    });

    test("is not overtaken by one that comes later and is small", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 500));
      const large = hands.hold(requestOf(payer, 1_000));
      const small = hands.hold(requestOf(payer, 1));
      expect(await hands.isWaiting(large)).toBe(true);
      expect(await hands.isWaiting(small)).toBe(true);
      hands.money.release(running);
      hands.money.release(await large);
      hands.money.release(await small);
    });

    test("keeps nobody waiting who needs nothing of what it waits for", async () => {
      const { organizationId } = await hands.owned.addOrganization(1_000_000n);
      const [poor, other] = await Promise.all([
        hands.owned.addKey(organizationId, { dailyBudgetNano: 100n }),
        hands.owned.addKey(organizationId),
      ]);
      const running = await hands.hold(requestOf(poor, 100));
      const waiting = hands.hold(requestOf(poor, 50));
      expect(await hands.isWaiting(waiting)).toBe(true);
      const passed = await hands.hold(requestOf(other, 5_000));
      const free = await hands.hold(requestOf(poor, 5_000, { perTokenFemto: 0n }));
      hands.money.release(running);
      for (const held of [passed, free, await waiting]) hands.money.release(held);
    });

    test("waits for two seconds at most, then is refused and told what would have been affordable", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 700));
      const late = hands.hold(requestOf(payer, 400));
      const other = hands.hold(
        requestOf(payer, 800, { isLimitExplicit: false, outputTokens: 5_000 }),
      );
      await hands.advance(MAX_WAIT_MS - 1);
      expect(await hands.isWaiting(late)).toBe(true);
      await hands.advance(1);
      const error = await late.catch((thrown) => thrown as GatewayError);
      expect(error).toMatchObject({ code: "insufficient_credits" });
      expect((error as GatewayError).message).toContain("At most 300 output tokens");
      // The one behind it took what was left: 300 tokens are worth an answer.
      expect(await other).toMatchObject({ outputTokens: 300, isLowered: true });
      hands.money.release(running);
      hands.money.release(await other);
    });

    test("is looked at once more when its time is up: nothing is refused while the money is there", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 900));
      const large = hands.hold(requestOf(payer, 1_000));
      const small = hands.hold(requestOf(payer, 100));
      expect(await hands.isWaiting(small)).toBe(true);
      await hands.advance(MAX_WAIT_MS);
      expect(await codeOf(large)).toBe("insufficient_credits");
      expect((await small).holdNano).toBe(100n);
      hands.money.release(running);
      hands.money.release(await small);
    });

    test("is served by money that arrives from elsewhere while it waits", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 900));
      const waiting = hands.hold(requestOf(payer, 1_000));
      expect(await hands.isWaiting(waiting)).toBe(true);
      await hands.owned.topUp(payer, 5_000n);
      expect((await hands.passing(waiting, 50)).holdNano).toBe(1_000n);
      hands.money.release(running);
      hands.money.release(await waiting);
    });

    test("waits in bounded number: beyond that a request is refused at once", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 1_000));
      const waiting = Array.from({ length: MAX_WAITING }, () => hands.hold(requestOf(payer, 1)));
      const codes = Promise.all(waiting.slice(0, 10).map(codeOf));
      expect(await codeOf(hands.hold(requestOf(payer, 1)))).toBe("insufficient_credits");
      hands.money.release(running);
      expect(await codes).toEqual(Array(10).fill(undefined));
      const granted = await Promise.all(waiting.slice(0, 1_000));
      for (const held of granted) hands.money.release(held);
      for (const held of await Promise.all(waiting.slice(1_000, 2_000))) hands.money.release(held);
      for (const held of await Promise.all(waiting.slice(2_000, 3_000))) hands.money.release(held);
      for (const held of await Promise.all(waiting.slice(3_000, 4_000))) hands.money.release(held);
      for (const held of await Promise.all(waiting.slice(4_000))) hands.money.release(held);
    });

    test("does not wait where spend alone refuses it", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 10));
      expect(await codeOf(hands.hold(requestOf(payer, 1_001)))).toBe("insufficient_credits");
      hands.money.release(running);
    });

    test("is refused where its key is switched off or deleted meanwhile, however much there is", async () => {
      for (const end of [
        (payer: Payer) => hands.owned.remove(payer),
        (payer: Payer) => hands.owned.change(payer, { isActive: false }),
      ]) {
        const payer = await hands.payerOf(RICH, { dailyBudgetNano: 100n });
        const running = await hands.hold(requestOf(payer, 100));
        const waiting = codeOf(hands.hold(requestOf(payer, 90)));
        await end(payer);
        hands.money.release(running);
        expect(await hands.passing(waiting)).toBeOneOf(["invalid_api_key", "key_inactive"]);
        expect(await codeOf(hands.hold(requestOf(payer, 1)))).toBeOneOf([
          "invalid_api_key",
          "key_inactive",
        ]);
      }
    });
  });
}
