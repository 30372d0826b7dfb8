import { expect, test } from "bun:test";
import { CreditOrders } from "../../src/billing/ledger/credit-orders.ts";
import { VirtualClock } from "../../src/lib/clock.ts";

/** Orders of a database whose first looks fail. */
function ordersBehind(failingLooks: number) {
  const clock = new VirtualClock();
  const errors: unknown[] = [];
  let looks = 0;
  const orders = new CreditOrders({
    // Nobody has given an order, so nobody is asked.
    organizations: {} as never,
    holdsAreShared: true,
    clock,
    read: async () => {
      if (++looks <= failingLooks) throw new Error("the connection broke");
      return [] as never;
    },
    onError: (error) => void errors.push(error),
  });
  const pass = async (ms: number): Promise<void> => {
    clock.advance(ms);
    for (let turn = 0; turn < 10; turn++) await null;
  };
  return { orders, errors, pass, looks: () => looks };
}

test("a look for orders that fails is repeated although no news comes, until one succeeds", async () => {
  const { orders, errors, pass, looks } = ordersBehind(2);
  await orders.carryOut();
  expect(looks()).toBe(1);
  for (let half = 0; half < 10; half++) await pass(500);
  expect(looks()).toBe(3);
  expect(errors.length).toBe(2);
});

test("a gateway that has closed looks for no orders any more", async () => {
  const { orders, pass, looks } = ordersBehind(1);
  await orders.carryOut();
  orders.close();
  for (let half = 0; half < 10; half++) await pass(500);
  expect(looks()).toBe(1);
});
