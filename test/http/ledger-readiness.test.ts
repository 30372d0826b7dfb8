import { afterAll, beforeAll, expect, test } from "bun:test";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase } from "../support/database.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

const TIMEOUT_MS = 60_000;

let network: CuttingProxy;
let gateway: TestGateway;
beforeAll(async () => {
  const database = await createTestDatabase();
  network = await startCuttingProxy(database.url);
  gateway = await startTestGateway({ database: { url: network.url, drop: database.drop } });
});
afterAll(async () => {
  await gateway.stop();
  await network.stop();
});

async function readiness() {
  const response = await gateway.request("GET", "/readyz");
  const { checks } = (await response.json()) as { checks: Record<string, string> };
  return { status: response.status, checks };
}

test(
  "/readyz fails while the connection that charges cannot be opened, although all others serve",
  async () => {
    const ready = { status: 200, checks: { database: "ok", ledger: "ok", draining: "ok" } };
    expect(await readiness()).toEqual(ready);
    network.swallow("gateway-ledger");
    network.breakDown();
    network.restore();
    const found = await until("the other connections serve again", async () => {
      const one = await readiness();
      return one.checks.database === "ok" ? one : undefined;
    });
    expect(found).toEqual({ status: 503, checks: { ...ready.checks, ledger: "unreachable" } });
    network.letThrough("kept");
    await until("it is ready again", async () => (await readiness()).status === 200, 20_000);
  },
  TIMEOUT_MS,
);
