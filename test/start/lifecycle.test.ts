import { expect, test } from "bun:test";
import { composeLifecycle, type Part } from "../../src/main/compose/lifecycle.ts";
import type { Services } from "../../src/main/compose/services.ts";
import { partsOf } from "../../src/main/compose.ts";
import { InFlight } from "../../src/platform/cluster/in-flight.ts";

const following = { drain() {}, stop() {} };

/** Parts that record what is called, in order. */
function recorded() {
  const calls: string[] = [];
  const part = (name: string, stopping?: Promise<void>): Part => ({
    start: () => void calls.push(`start ${name}`),
    async stop() {
      calls.push(`stop ${name}`);
      await stopping;
      calls.push(`stopped ${name}`);
    },
  });
  return { calls, part };
}

test("parts start in their order and stop in the reverse order, one after the other", async () => {
  const { calls, part } = recorded();
  const parts = { first: part("first"), second: part("second") };
  const gateway = composeLifecycle(parts, { inFlight: new InFlight(), following });
  await gateway.start();
  await gateway.close();
  expect(calls).toEqual([
    ...["start first", "start second"],
    ...["stop second", "stopped second", "stop first", "stopped first"],
  ]);
});

test("the members of a group stop at the same time, and begin in their order", async () => {
  const { calls, part } = recorded();
  const { promise, resolve } = Promise.withResolvers<void>();
  const thread = { stop: resolve };
  const parts = { base: part("base"), jobs: [part("job", promise), thread] };
  await composeLifecycle(parts, { inFlight: new InFlight(), following }).close();
  expect(calls).toEqual(["stop job", "stopped job", "stop base", "stopped base"]);
});

test("a part that fails to stop keeps no other part from stopping, and the stop fails", async () => {
  const { calls, part } = recorded();
  const failed = { stop: () => Promise.reject(new Error("unreachable")) };
  const parts = { first: part("first"), failed, third: part("third") };
  const { close } = composeLifecycle(parts, { inFlight: new InFlight(), following });
  await expect(close()).rejects.toThrow("unreachable");
  expect(calls).toEqual(["stop third", "stopped third", "stop first", "stopped first"]);
});

test("requests are aborted when the grace time has ended, and only then", async () => {
  const inFlight = new InFlight();
  let aborted = 0;
  const requests: Part = {
    abort() {
      aborted++;
      inFlight.end();
    },
  };
  const { drain } = composeLifecycle({ requests }, { inFlight, following });
  await drain(0);
  expect(aborted).toBe(0);
  inFlight.begin();
  await drain(0);
  expect(aborted).toBe(1);
});

/** Each part stops before the parts that it uses until then. */
const USES: readonly (readonly [part: string, uses: string, reason: string])[] = [
  ["coordination", "connections", "nothing runs on closed connections"],
  ["node", "coordination", "an instance that has left shares no limits"],
  ["webhooks", "node", "deliveries are written under leases"],
  ["ledger", "webhooks", "the last charges cause events"],
  ["exports", "ledger", "the last metrics are sent while the ledger closes"],
  ["exports", "lastExports", "they are awaited when all parts have stopped"],
  ["jobs", "ledger", "the last lines of batches are charged"],
  ["jobs", "files", "jobs write files"],
  ["jobs", "idempotency", "lines of batches hold idempotency keys"],
  ["billing", "ledger", "payments post credit"],
  ["orders", "ledger", "orders of operators post credit"],
  ["pendingRefunds", "ledger", "refunds are posted"],
  ["failedRequests", "connections", "the last failed requests are written"],
  ["lastUse", "connections", "the last uses of keys are written"],
];

test.each(USES)("%s stops before %s: %s", (part, uses) => {
  const services = new Proxy({}, { get: () => ({}) }) as Services;
  const order = Object.keys(partsOf(services));
  expect(order).toContain(part);
  expect(order).toContain(uses);
  expect(order.indexOf(part)).toBeGreaterThan(order.indexOf(uses));
});
