import { afterAll, beforeAll, expect, test } from "bun:test";
import { type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { addOperator } from "../support/operator-keys.ts";

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway();
});
afterAll(() => gateway.stop());

const own = (key: string) => gateway.request("GET", "/v1/key", undefined, { key });
// biome-ignore lint/suspicious/noExplicitAny: the answer's fields are what is tested
const shape = async (key: string): Promise<any> => (await own(key)).json();

test("a key without limits has nothing that could run out", async () => {
  for (const key of [gateway.secretKey, gateway.managementKey]) {
    expect(await shape(key)).toMatchObject({
      usage_today_usd: 0,
      remaining_today_usd: null,
      remaining_month_usd: null,
      remaining_rpm: null,
    });
  }
});

test("a key sees its list item, and what is left of its limits after each call", async () => {
  const { id, secret } = await gateway.addKey({
    scopes: ["chat:completions"],
    rate_limit_rpm: 3,
    daily_budget_usd: 0.00002,
    monthly_budget_usd: 5,
    allowed_models: ["test/exact"],
  });
  const [item] = (
    (await (
      await gateway.request("GET", "/v1/keys?limit=1", undefined, { key: gateway.managementKey })
    ).json()) as { data: object[] }
  ).data;
  const before = await shape(secret);
  expect(before).toMatchObject({ ...item, id, last_used_at: before.last_used_at });
  expect(before).toMatchObject({
    remaining_today_usd: 0.00002,
    remaining_month_usd: 5,
    remaining_rpm: 3,
  });
  expect((await gateway.chat(secret)).status).toBe(200);
  expect(await shape(secret)).toMatchObject({
    usage_today_usd: 0.0000104,
    remaining_today_usd: 0.0000096,
    remaining_month_usd: 4.9999896,
    remaining_rpm: 2,
  });
  await expectError(await gateway.chat(secret), 402, "budget_exhausted");
  expect(await shape(secret)).toMatchObject({ remaining_rpm: 1 });
  const lowered = { daily_budget_usd: 0.000001 };
  await gateway.request("PATCH", `/v1/keys/${id}`, lowered, { key: gateway.managementKey });
  expect(await shape(secret)).toMatchObject({ remaining_today_usd: 0 });
});

test("asking takes nothing of the rate limit, and goes on where that is used up", async () => {
  const { secret } = await gateway.addKey({ rate_limit_rpm: 1 });
  for (let i = 0; i < 5; i++) expect(await shape(secret)).toMatchObject({ remaining_rpm: 1 });
  expect((await gateway.chat(secret)).status).toBe(200);
  expect(await shape(secret)).toMatchObject({ remaining_rpm: 0 });
  await expectError(await gateway.chat(secret), 429, "rate_limit_exceeded");
});

test("an operator key belongs to no organization: 403; a key that is off or unknown: 401", async () => {
  await expectError(await own(await addOperator(gateway)), 403, "wrong_key_kind");
  const { id, secret } = await gateway.addKey({});
  await gateway.request(
    "PATCH",
    `/v1/keys/${id}`,
    { is_active: false },
    { key: gateway.managementKey },
  );
  await expectError(await own(secret), 401, "key_inactive");
  await gateway.request("DELETE", `/v1/keys/${id}`, undefined, { key: gateway.managementKey });
  await expectError(await own(secret), 401, "invalid_api_key");
});
