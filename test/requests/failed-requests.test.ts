import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { FailedRequests } from "../../src/billing/requests/failed-requests.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const ROUTE = "/v1/chat/completions";

function writer(sql: Database) {
  const clock = new VirtualClock();
  const errors: unknown[] = [];
  const failures = new FailedRequests({
    sql,
    steadyClock: clock,
    routes: new Set([`POST ${ROUTE}`]),
    statusOf: () => 502,
    onError: (error) => errors.push(error),
  });
  const note = (id: string, changes: object = {}) =>
    failures.note({
      ...{ requestId: id, method: "POST", route: ROUTE, status: 402, latencyMs: 1, keyId: "key_w" },
      ...{ organizationId: gateway.organizationId, model: undefined, provider: undefined },
      ...{ promptTokens: undefined, completionTokens: undefined, costNano: undefined },
      ...{ firstTokenMs: undefined, errorCode: "budget_exhausted", cache: undefined },
      ...changes,
    });
  return { clock, errors, failures, note };
}

async function countOf(prefix: string): Promise<number> {
  const [row] = await gateway.sql<{ count: number }[]>`
    SELECT count(*)::int AS count FROM failed_requests WHERE id LIKE ${`${prefix}%`}`;
  return row!.count;
}

/** A database that is out of reach until the test switches it on. */
function unreachable() {
  const state = { isAway: true, tries: 0 };
  const sql = new Proxy(gateway.sql, {
    apply(call, self, parameters) {
      state.tries++;
      if (!state.isAway) return Reflect.apply(call as never, self, parameters);
      return Promise.reject(Object.assign(new Error("gone"), { code: "CONNECTION_CLOSED" }));
    },
  });
  return { state, sql };
}

test("failures of a moment are one batch, what is not one is left out", async () => {
  const { clock, note, failures } = writer(gateway.sql);
  note("req_batch_1");
  note("req_batch_2", { request: { model: "\0\ud800".repeat(400), user: 7, session_id: "s" } });
  note("req_batch_3", { status: 200, errorCode: undefined });
  note("req_batch_4", { route: "/v1/keys" });
  note("req_batch_5", { organizationId: undefined });
  clock.advance(250);
  await until("they are written", async () => (await countOf("req_batch_")) === 2);
  const [row] = await gateway.sql`
    SELECT model, user_name, session_id FROM failed_requests WHERE id = 'req_batch_2'`;
  expect(row!.model).toHaveLength(256);
  expect(row).toMatchObject({ user_name: null, session_id: "s" });
  expect(failures.dropped).toBe(0);
});

test("while the database is away they wait; what the queue has no room for is counted", async () => {
  const { state, sql } = unreachable();
  const { clock, note, failures, errors } = writer(sql);
  const other = (await gateway.addOrganization()).organization.id;
  for (let n = 0; n < 6_000; n++) note(`req_away_${n}`);
  // One organization takes half of the queue at most.
  expect(failures.dropped).toBe(1_000);
  for (let n = 0; n < 5_001; n++) note(`req_away_other_${n}`, { organizationId: other });
  expect(failures.dropped).toBe(1_001);
  await until("it was tried", () => state.tries > 0);
  state.isAway = false;
  await until("they are written", async () => {
    clock.advance(250);
    return (await countOf("req_away_")) === 10_000;
  });
  expect(errors).toEqual([]);
  note("req_away_last");
  await failures.close(5_000);
  expect(await countOf("req_away_")).toBe(10_001);
  expect(failures.dropped).toBe(1_001);
});

test("the end of the process writes what waits; what cannot be written then is counted", async () => {
  const { note, failures } = writer(gateway.sql);
  note("req_end_1");
  await failures.close(5_000);
  expect(await countOf("req_end_")).toBe(1);
  note("req_end_2");
  expect(failures.dropped).toBe(1);
  const lost = writer(unreachable().sql);
  lost.note("req_lost");
  await lost.failures.close(5_000);
  expect(lost.failures.dropped).toBe(1);
});
