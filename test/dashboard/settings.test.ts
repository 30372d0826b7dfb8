import { afterAll, beforeAll, expect, test } from "bun:test";
import { joined } from "../people/people.ts";
import { addKeyOf } from "../support/api-keys.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";

const stripe = new StripeServer();
let gateway: TestGateway;
let browser: DashboardBrowser;
beforeAll(async () => {
  gateway = await startTestGateway({
    environment: { ...stripe.environment, STRIPE_PRO_PRICE_ID: "price_pro" },
    configuration: {
      providers: [
        { id: "acme", type: "openai", base_url: "http://127.0.0.1:9/v1", api_key: "sk-house" },
        { id: "local", type: "openai-compatible", base_url: "http://127.0.0.1:9/v1" },
      ],
    },
  });
  browser = await signIn(gateway, gateway.managementKey);
});
afterAll(async () => {
  await gateway.stop();
  await stripe.stop();
});

async function shown<Answer>(path: string, by = browser): Promise<Answer> {
  const response = await by.call("GET", path);
  expect(response.status).toBe(200);
  return (await response.json()) as Answer;
}

const price = async () => (await shown<{ price: object | null }>("settings/plan-price")).price;

test("a paid plan has Stripe's price, in the units of its currency, and none while Stripe does not say", async () => {
  stripe.refuse = () => new Response("{}", { status: 500 });
  expect(await price()).toBeNull();
  stripe.refuse = undefined;
  stripe.price = { ...stripe.price, unit_amount: null };
  expect(await price()).toBeNull();
  stripe.price = { ...stripe.price, unit_amount: 2_900, currency: "jpy" };
  const stated = { amount: 2_900, currency: "JPY", interval: "month", interval_count: 1 };
  expect(await price()).toEqual(stated);
});

test("the plans are listed without asking Stripe, and its price once for all who wait for it", async () => {
  const fresh = await startTestGateway({
    environment: { ...stripe.environment, STRIPE_PRO_PRICE_ID: "price_pro" },
  });
  const owner = await signIn(fresh, fresh.managementKey);
  const held = Promise.withResolvers<void>();
  let asked = 0;
  stripe.refuse = async () => {
    asked++;
    await held.promise;
    return undefined;
  };
  try {
    const prices = [1, 2, 3].map(() => owner.call("GET", "settings/plan-price"));
    await until("Stripe is asked", () => asked > 0);
    const { data } = await shown<{ data: { plan: string; is_paid: boolean }[] }>(
      "settings/plans",
      owner,
    );
    expect(data.map(({ plan, is_paid: isPaid }) => [plan, isPaid])).toEqual([
      ["free", false],
      ["pro", true],
      ["byok", false],
    ]);
    held.resolve();
    for (const response of await Promise.all(prices)) {
      expect(await response.json()).toMatchObject({ price: { interval: "month" } });
    }
    expect(asked).toBe(1);
  } finally {
    held.resolve();
    stripe.refuse = undefined;
    await fresh.stop();
  }
});

test("choices are what this gateway takes", async () => {
  expect(await shown<object>("settings/choices")).toMatchObject({
    payments: { processor: "stripe", min_usd: 5, max_usd: 10_000 },
    providers: expect.arrayContaining([
      { id: "acme", needs_base_url: false },
      { id: "local", needs_base_url: true },
    ]),
    guardrails: { can_moderate: false, entities: expect.arrayContaining(["email", "iban"]) },
  });
});

test("who can sign in is listed with the sessions that are open, of this organization alone", async () => {
  const other = await gateway.addOrganization();
  const second = await addKeyOf("management", gateway, { name: "second" });
  const sessions = [await signIn(gateway, second), await signIn(gateway, second)];
  const list = async () => {
    const { keys } = await shown<{ keys: { name: string; sessions: number }[] }>(
      "settings/sign-ins",
    );
    return new Map(keys.map(({ name, sessions: count }) => [name, count]));
  };
  const before = await list();
  expect([...before.keys()].toSorted()).toEqual(["Default management key", "second"]);
  expect(before.get("second")).toBe(2);
  await sessions[0]!.call("DELETE", "session");
  await gateway.sql`UPDATE dashboard_sessions SET last_used_at = now() - interval '61 minutes'
    WHERE key_id = (SELECT id FROM api_keys WHERE name = 'second')`;
  expect((await list()).get("second")).toBe(0);
  const foreign = await signIn(gateway, other.managementKey);
  const { keys } = await shown<{ keys: object[] }>("settings/sign-ins", foreign);
  expect(keys).toHaveLength(1);
  expect(JSON.stringify(keys)).not.toContain(other.managementKey);
});

test("the sessions of a key can be ended but for the one that asks, by its organization alone", async () => {
  const others = [await signIn(gateway, gateway.managementKey)];
  others.push(await signIn(gateway, gateway.managementKey));
  const { keys } = await shown<{ keys: { id: string; name: string }[] }>("settings/sign-ins");
  const { id } = keys.find(({ name }) => name === "Default management key")!;
  const stranger = await signIn(gateway, (await gateway.addOrganization()).managementKey);
  await expectError(await stranger.call("DELETE", `settings/sign-ins/${id}`), 404, "key_not_found");
  await expectError(await browser.call("DELETE", "settings/sign-ins/key_0"), 404, "key_not_found");
  for (const one of others) expect((await one.call("GET", "v1/keys")).status).toBe(200);
  const ended = await browser.call("DELETE", `settings/sign-ins/${id}`);
  expect(await ended.json()).toEqual({ ended: 2 });
  for (const one of others) await expectError(await one.call("GET", "v1/keys"), 401, "no_session");
  expect((await browser.call("GET", "v1/keys")).status).toBe(200);
  const [entry] = (await shown<{ data: object[] }>("v1/audit_log?action=session.ended")).data;
  expect(entry).toMatchObject({ after: { holder: id, sessions: 2 } });
});

test("sections of settings are pages, which find their files a folder above", async () => {
  const response = await fetch(`${gateway.baseUrl}/dashboard/settings/billing`);
  expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
  const [file] = /(?<=src=")[^"]*/.exec(await response.text())!;
  const script = await fetch(new URL(file, response.url));
  expect(script.headers.get("content-type")).toContain("javascript");
});

test("a developer neither sees nor ends the sessions of others", async () => {
  const developer = await joined(gateway, "developer");
  await expectError(await developer.call("GET", "settings/sign-ins"), 403, "role_not_permitted");
  const { data } = (await (await browser.call("GET", "v1/keys")).json()) as {
    data: { id: string }[];
  };
  for (const { id } of data) {
    const ended = await developer.call("DELETE", `settings/sign-ins/${id}`);
    await expectError(ended, 403, "role_not_permitted");
  }
});
