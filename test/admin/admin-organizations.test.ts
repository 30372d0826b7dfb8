import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";

let gateway: MoneyGateway;
let operator: string;
beforeAll(async () => {
  gateway = await startMoneyGateway();
  operator = await addOperator(gateway);
});
afterAll(() => gateway.stop());

const send = (method: string, path: string, body?: unknown) =>
  gateway.request(method, `/v1/admin/organizations${path}`, body, { key: operator });
const patch = (id: string, body: unknown) => send("PATCH", `/${id}`, body);
// biome-ignore lint/suspicious/noExplicitAny: answers of many shapes
const json = async (response: Response): Promise<any> => response.json();

describe("organizations", () => {
  test("are made with keys that work, and listed newest first", async () => {
    const made = await send("POST", "", { name: "Acme", plan: "pro", starting_credit_usd: 2.5 });
    expect(made.status).toBe(201);
    const { organization, management_key, secret_key } = await json(made);
    expect(organization).toMatchObject({
      name: "Acme",
      plan: "pro",
      fee_percent: 2.5,
      max_keys: 100_000,
      max_webhooks: 100,
      credit_limit_usd: 0,
      overrides: [],
      computer_use: false,
      suspended: false,
      balance_usd: 2.5,
      key_count: 2,
    });
    const { id } = organization as { id: string };
    expect(
      (await gateway.request("GET", "/v1/keys", undefined, { key: management_key })).status,
    ).toBe(200);
    expect((await gateway.chat(secret_key)).status).toBe(200);
    const list = (await json(await send("GET", "?limit=1"))) as {
      data: { id: string }[];
      total: number;
    };
    expect(list.data.map((one) => one.id)).toEqual([id]);
    expect(list.total).toBeGreaterThan(1);
    expect(await json(await send("GET", `/${id}`))).toMatchObject({ id, name: "Acme" });
  });

  test("are not made of bad bodies", async () => {
    const before = (await json(await send("GET", ""))).total;
    for (const body of [
      {},
      { name: "" },
      { name: "   " },
      { name: 5 },
      { name: "x", plan: "gold" },
      { name: "x", plan: null },
      { name: "x", fee_percent: -1 },
      { name: "x", fee_percent: 2.345 },
      { name: "x", fee_percent: 101 },
      { name: "x", max_keys: 1.5 },
      { name: "x", max_keys: "5" },
      { name: "x", max_webhooks: -1 },
      { name: "x", credit_limit_usd: -1 },
      { name: "x", credit_limit_usd: 1e-10 },
      { name: "x", starting_credit_usd: -1 },
      { name: "x", suspended: true },
      { name: "x", unknown: 1 },
    ]) {
      await expectError(await send("POST", "", body), 400, "invalid_body");
    }
    expect((await json(await send("GET", ""))).total).toBe(before);
  });

  test("that are not there are 404, whatever is asked of them", async () => {
    const charge = { transaction_id: "txn_1" };
    for (const [method, path, body] of [
      ["GET", "/org_none", undefined],
      ["PATCH", "/org_none", { plan: "pro" }],
      ["PATCH", "/org_none", {}],
      ["PATCH", "/org_none", { credit_limit_usd: 5 }],
      ["POST", "/org_none/adjustments", { amount_usd: 1, description: "x" }],
      ["POST", "/org_none/refunds", charge],
      ["GET", "/%00", undefined],
    ] as const) {
      await expectError(await send(method, path, body), 404, "organization_not_found");
    }
  });

  test("take each setting, and null gives back the default", async () => {
    const { organization } = await gateway.addOrganization();
    const set = {
      name: "Renamed",
      fee_percent: 1.25,
      file_quota_bytes: 1_000,
      max_keys: 5,
      max_webhooks: 0,
      credit_limit_usd: 12.5,
    };
    expect(await json(await patch(organization.id, set))).toMatchObject({
      ...set,
      overrides: ["fee_percent", "file_quota_bytes", "max_keys", "max_webhooks"],
    });
    const cleared = {
      fee_percent: null,
      file_quota_bytes: null,
      max_keys: null,
      max_webhooks: null,
    };
    expect(await json(await patch(organization.id, cleared))).toMatchObject({
      name: "Renamed",
      fee_percent: 4,
      file_quota_bytes: 107_374_182_400,
      max_keys: 100_000,
      max_webhooks: 100,
      credit_limit_usd: 12.5,
      overrides: [],
    });
    expect((await patch(organization.id, {})).status).toBe(200);
  });
});

describe("a change", () => {
  test("of the fee holds for the next request", async () => {
    const { organization, secretKey } = await gateway.addOrganization();
    const cost = async () => Number((await gateway.chat(secretKey)).headers.get("x-gateway-cost"));
    expect(await cost()).toBe(0.0000104);
    await patch(organization.id, { fee_percent: 50 });
    expect(await cost()).toBe(0.000015);
    await patch(organization.id, { fee_percent: null, plan: "enterprise" });
    expect(await cost()).toBe(0.00001);
    await patch(organization.id, { plan: "pro" });
    expect(await cost()).toBe(0.00001025);
  });

  test("of the credit limit holds for the next request, and is not below what is used", async () => {
    const { organization, secretKey } = await gateway.addOrganization({ creditUsd: 0 });
    await expectError(await gateway.chat(secretKey), 402, "insufficient_credits");
    await patch(organization.id, { credit_limit_usd: 1 });
    expect((await gateway.chat(secretKey)).status).toBe(200);
    await expectError(
      await patch(organization.id, { credit_limit_usd: 0, max_keys: 7 }),
      402,
      "insufficient_credits",
    );
    const seen = await json(await send("GET", `/${organization.id}`));
    expect(seen).toMatchObject({ credit_limit_usd: 1, max_keys: 100_000 });
    await patch(organization.id, { credit_limit_usd: null });
    expect((await gateway.chat(secretKey)).status).toBe(200);
  });

  test("of the plan brings that plan's credit limit, unless another one was set", async () => {
    const { organization } = await gateway.addOrganization();
    const limitOn = async (plan: string) =>
      (await json(await patch(organization.id, { plan }))).credit_limit_usd;
    expect(await limitOn("enterprise")).toBeNull();
    expect(await limitOn("pro")).toBe(0);
    await patch(organization.id, { credit_limit_usd: 3 });
    expect(await limitOn("enterprise")).toBe(3);
    expect(await limitOn("enterprise")).toBe(3);
  });

  test("of the file quota holds for the next upload", async () => {
    const { organization, secretKey } = await gateway.addOrganization();
    const upload = () => {
      const form = new FormData();
      form.append("purpose", "assistants");
      form.append("file", new File(["0123456789"], "a.txt", { type: "text/plain" }));
      return fetch(`${gateway.baseUrl}/v1/files`, {
        method: "POST",
        headers: { authorization: `Bearer ${secretKey}` },
        body: form,
      });
    };
    await patch(organization.id, { file_quota_bytes: 9 });
    await expectError(await upload(), 403, "quota_exceeded");
    await patch(organization.id, { file_quota_bytes: 10 });
    expect((await upload()).status).toBe(200);
  });

  test("of the number of keys holds for the next creation", async () => {
    const { organization, managementKey } = await gateway.addOrganization();
    const create = () =>
      gateway.request("POST", "/v1/keys", { name: crypto.randomUUID() }, { key: managementKey });
    await patch(organization.id, { max_keys: 2 });
    await expectError(await create(), 403, "quota_exceeded");
    await patch(organization.id, { max_keys: 3 });
    expect((await create()).status).toBe(201);
    await patch(organization.id, { max_keys: 0 });
    await expectError(await create(), 403, "quota_exceeded");
  });
});

test("an organization may use computer tools when an operator says so, until that is taken back", async () => {
  const { organization } = await gateway.addOrganization();
  for (const computer_use of [true, false]) {
    expect(await json(await patch(organization.id, { computer_use }))).toMatchObject({
      computer_use,
    });
  }
  expect((await patch(organization.id, { computer_use: "yes" })).status).toBe(400);
});

describe("a suspended organization", () => {
  test("has every call of its keys refused at once, and served again when it is not suspended any more", async () => {
    const { organization, managementKey, secretKey } = await gateway.addOrganization();
    expect((await gateway.chat(secretKey)).status).toBe(200);
    expect(await json(await patch(organization.id, { suspended: true }))).toMatchObject({
      suspended: true,
    });
    await expectError(await gateway.chat(secretKey), 403, "organization_suspended");
    await expectError(
      await gateway.chat(secretKey, { stream: true }),
      403,
      "organization_suspended",
    );
    for (const path of ["/v1/keys", "/v1/key", "/v1/credits", "/v1/models", "/v1/files"]) {
      for (const key of [managementKey, secretKey]) {
        const response = await gateway.request("GET", path, undefined, { key });
        await expectError(response, 403, "organization_suspended");
      }
    }
    // Other organizations are served all the while, and a key that is no key stays 401.
    expect((await gateway.chat(gateway.secretKey)).status).toBe(200);
    expect((await patch(organization.id, { name: "Still suspended" })).status).toBe(200);
    await expectError(await gateway.chat(secretKey), 403, "organization_suspended");
    await patch(organization.id, { suspended: false });
    expect((await gateway.chat(secretKey)).status).toBe(200);
  });

  test("is known of although it was suspended beside this gateway", async () => {
    const { organization, secretKey } = await gateway.addOrganization();
    expect((await gateway.chat(secretKey)).status).toBe(200);
    await gateway.sql.begin(async (sql) => {
      await sql`UPDATE organizations SET suspended_at = now() WHERE id = ${organization.id}`;
      await sql`INSERT INTO changes (kind, object_id) VALUES ('suspension', ${organization.id})`;
    });
    await until("the refusal", async () => (await gateway.chat(secretKey)).status === 403);
  });

  test("has its running streams go on to their end, and pays for them", async () => {
    const { organization, secretKey } = await gateway.addOrganization();
    gateway.upstream.behave("roomy", {
      do: "complete",
      content: "word".repeat(40),
      events: 10,
      delayMs: 60,
    });
    const response = await gateway.chat(secretKey, { model: "test/roomy", stream: true });
    const reader = response.body!.getReader();
    await reader.read();
    expect((await patch(organization.id, { suspended: true })).status).toBe(200);
    let text = "";
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      text += decoder.decode(value);
    }
    expect(text).toContain("[DONE]");
    const [usage] = await gateway.sql<{ count: number }[]>`SELECT count(*)::int AS count
      FROM transactions WHERE organization_id = ${organization.id} AND type = 'usage' AND status = 200`;
    expect(usage!.count).toBe(1);
  });
});

test("the health of providers names each provider, and the endpoints that were called", async () => {
  await gateway.chat(gateway.secretKey);
  const report = (await json(
    await gateway.request("GET", "/v1/admin/providers", undefined, { key: operator }),
  )) as {
    instance_id: string;
    data: { id: string; status: string; endpoints: { id: string; latency_ms: number | null }[] }[];
  };
  expect(report.instance_id).toStartWith("ins_");
  const upstream = report.data.find(({ id }) => id === "upstream")!;
  expect(upstream.status).toBe("ok");
  const exact = upstream.endpoints.find(({ id }) => id === "upstream/exact")!;
  expect(exact.latency_ms).toBeGreaterThan(0);
});
