import { expect, test } from "bun:test";
import { MAX_WATCHED_ORGANIZATIONS } from "../../src/billing/ledger/balance-watch.ts";
import { startMoneyGateway } from "../money/money-gateway.ts";
import { until } from "../support/until.ts";

const READ_MS = 10_000;

test("gateway_balance_usd tells the balance of each organization, of a bounded number of them", async () => {
  const gateway = await startMoneyGateway({ creditUsd: 3 });
  try {
    const series = async () =>
      (await gateway.telemetry.metrics())
        .split("\n")
        .filter((line) => line.startsWith("gateway_balance_usd{"));
    const line = (usd: string) =>
      `gateway_balance_usd{organization="${gateway.organizationId}"} ${usd}`;
    await until("the first read", async () => (await series()).includes(line("3")));
    await (await gateway.chat(gateway.secretKey)).text();
    await gateway.sql`INSERT INTO organizations (id, name, plan)
      SELECT 'org_z' || n, 'many', 'free' FROM generate_series(1, 1500) n`;
    await gateway.sql`INSERT INTO accounts (id, kind, organization_id)
      SELECT 'org:org_z' || n, 'org', 'org_z' || n FROM generate_series(1, 1500) n`;
    await until(
      "a later read",
      async () => (await series()).includes(line("2.9999896")),
      READ_MS * 2,
    );
    expect(await series()).toHaveLength(MAX_WATCHED_ORGANIZATIONS);
  } finally {
    await gateway.stop();
  }
}, 60_000);
