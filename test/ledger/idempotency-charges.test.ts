import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { freeIdempotencyKey } from "../../db/queries/idempotency.ts";
import { Idempotency } from "../../src/inference/call/idempotency/idempotency.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { openClusteredMoney } from "../contracts/clustered-money.ts";
import { figures, requestOf } from "../contracts/money/owned-money.ts";
import { openSingleNodeMoney } from "../contracts/single-node-money.ts";
import { claimOf } from "../support/idempotency-claim.ts";
import { testKeyring } from "../support/master-key.ts";
import { attemptsOf, faultsOf, postedOf } from "./books.ts";

const NEVER = new AbortController().signal;

/*
 * A charge that is still on its way when its call has failed and freed its key: another call may have the
 * key by then, and one of the two is charged, not both.
 */
describe.each([
  ["single-node", openSingleNodeMoney],
  ["clustered", openClusteredMoney],
] as const)("in %s mode", (_, open) => {
  let owned: Awaited<ReturnType<typeof open>>;
  let idempotency: Idempotency;
  beforeAll(async () => {
    owned = await open();
    idempotency = new Idempotency({
      sql: owned.sql,
      instance: owned.books.instance,
      keyring: await testKeyring(owned.sql),
      clock: systemClock,
      maxWaitMs: 0,
      isAborting: () => false,
    });
  });
  afterAll(async () => {
    await idempotency.close();
    await owned.close();
  });

  const store = (claim: ReturnType<typeof claimOf>, isClaimNeeded: boolean) =>
    idempotency.storeEffect(claim, 200, {}, Buffer.from("answer"), { isClaimNeeded });

  test("a charge whose key was freed is not posted, and its hold ends", async () => {
    const payer = await owned.addOrganization(1_000n);
    const first = claimOf("freed before its charge");
    expect(await idempotency.claim(first, NEVER)).toBeUndefined();
    const held = await owned.money.hold(requestOf(payer, 600, { requestId: first.requestId }));
    await freeIdempotencyKey(owned.sql, first);
    const second = claimOf(first.idempotencyKey);
    expect(await idempotency.claim(second, NEVER)).toBeUndefined();
    const settled = owned.money.settle(held, figures(500n), store(first, true));
    await expect(settled).rejects.toMatchObject({ code: "GW003" });
    // What the first call would have taken is there for the second one.
    const again = await owned.money.hold(requestOf(payer, 900, { requestId: second.requestId }));
    await owned.money.settle(again, figures(500n), store(second, true));
    const posted = await postedOf(owned.sql, [first.requestId, second.requestId]);
    expect(posted).toEqual([second.requestId]);
    const replay = await idempotency.claim(claimOf(first.idempotencyKey), NEVER);
    expect(Buffer.from(replay!.body).toString()).toBe("answer");
    expect(owned.money.outstandingHolds).toBe(0);
    expect(await faultsOf(owned.sql)).toEqual([]);
  });

  test("what a stream has delivered is charged all the same", async () => {
    const payer = await owned.addOrganization(1_000n);
    const claim = claimOf("freed in a stream");
    expect(await idempotency.claim(claim, NEVER)).toBeUndefined();
    const held = await owned.money.hold(requestOf(payer, 600, { requestId: claim.requestId }));
    await owned.money.checkpoint(held, figures(100n));
    await freeIdempotencyKey(owned.sql, claim);
    await owned.money.settle(held, figures(500n), store(claim, false));
    expect(await postedOf(owned.sql, [claim.requestId])).toHaveLength(1);
    expect(await attemptsOf(owned.sql)).toEqual([]);
    expect(await faultsOf(owned.sql)).toEqual([]);
  });
});
