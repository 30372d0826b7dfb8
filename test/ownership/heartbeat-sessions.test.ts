import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

/** Several times as long as a heartbeat is waited for. */
const LOCKED_MS = 5_000;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test("while its table is locked an instance does not leave one session after the other waiting, and goes on afterwards", async () => {
  const { sql } = gateway;
  const sessions = await sql.begin(async (transaction) => {
    await transaction`LOCK TABLE instances IN ACCESS EXCLUSIVE MODE`;
    await Bun.sleep(LOCKED_MS);
    return transaction`SELECT pid FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE 'gateway-lock-%'`;
  });
  // That of the heartbeats, and the one that listens.
  expect(sessions.length).toBeLessThanOrEqual(2);
  await until("it is ready again", async () => (await gateway.request("GET", "/readyz")).ok);
}, 60_000);
