import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { setCreditLimit } from "../../db/queries/credit-commands.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { parseStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";
import { type MoneyGateway, startMoneyGateway } from "./money-gateway.ts";

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway();
});
afterAll(() => gateway.stop());

describe.each([
  ["free", "4", 10_400n],
  ["pro", "2.5", 10_250n],
])("the plan %s", (plan, fee, chargeNano) => {
  test(`adds ${fee} % to the provider's cost, in body, header, stream and ledger`, async () => {
    const { organization, secretKey } = await gateway.addOrganization({ plan });
    const whole = await gateway.chat(secretKey);
    const costUsd = Number(chargeNano) / 1e9;
    expect(Number(whole.headers.get("x-gateway-cost"))).toBe(costUsd);
    expect(await whole.json()).toMatchObject({ usage: { cost: costUsd } });
    const streamed = await gateway.chat(secretKey, {
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(parseStream(await streamed.text()).usage).toMatchObject({ cost: costUsd });
    await expectBooksClosed(gateway);
    const charges = await gateway.sql`SELECT -amount_nano AS charge FROM transactions
      WHERE organization_id = ${organization.id} AND type = 'usage'`;
    expect(charges.map(({ charge }) => charge)).toEqual([chargeNano, chargeNano]);
  });
});

describe("the plan byok", () => {
  test("without a provider key is 402 with a message that says so, and calls nobody", async () => {
    const { organization, secretKey } = await gateway.addOrganization({ plan: "byok" });
    const servedBefore = gateway.upstream.served.length;
    for (const stream of [false, true]) {
      const { error } = await expectError(
        await gateway.chat(secretKey, { stream }),
        402,
        "insufficient_credits",
      );
      expect(error.message).toMatch(/BYOK/);
      expect(error.message).toMatch(/provider key/);
      expect(error.message).toContain("upstream");
    }
    expect(gateway.upstream.served).toHaveLength(servedBefore);
    const charges = await gateway.sql`SELECT id FROM transactions
      WHERE organization_id = ${organization.id} AND type = 'usage'`;
    expect([...charges]).toEqual([]);
  });

  test("adds no fee where no provider key is needed", async () => {
    const prices = { in: 0n, out: 0n };
    const listed = await gateway.request("GET", "/v1/models/sandbox%2Fchat");
    const model = (await listed.json()) as Record<string, number>;
    prices.in = BigInt(Math.round(model.input_cost_per_token! * 1e15));
    prices.out = BigInt(Math.round(model.output_cost_per_token! * 1e15));
    const { secretKey } = await gateway.addOrganization({ plan: "byok" });
    const response = await gateway.chat(secretKey, { model: "sandbox/chat" });
    expect(response.status).toBe(200);
    const { usage } = (await response.json()) as { usage: Record<string, number> };
    const femto =
      BigInt(usage.prompt_tokens!) * prices.in + BigInt(usage.completion_tokens!) * prices.out;
    expect(usage.cost).toBe(Number((femto + 500_000n) / 1_000_000n) / 1e9);
  });
});

describe("the plan enterprise", () => {
  test("adds no fee, and goes on below a balance of zero", async () => {
    const { organization, secretKey } = await gateway.addOrganization({
      plan: "enterprise",
      creditUsd: 0,
    });
    for (let call = 0; call < 2; call++) {
      const response = await gateway.chat(secretKey);
      expect(response.status).toBe(200);
      expect(Number(response.headers.get("x-gateway-cost"))).toBe(0.00001);
    }
    await expectBooksClosed(gateway);
    const [account] = await gateway.sql`SELECT credit_nano - posted_nano AS balance FROM accounts
      WHERE id = ${`org:${organization.id}`}`;
    expect(account!.balance).toBe(-20_000n);
  });

  test("has the operator's credit limit where one is set", async () => {
    const { organization, secretKey } = await gateway.addOrganization({
      plan: "enterprise",
      creditUsd: 0,
    });
    await gateway.sql.begin((sql) => setCreditLimit(sql, organization.id, 0n));
    await until(
      "the limit is in force",
      async () => (await gateway.chat(secretKey)).status === 402,
    );
  });
});
