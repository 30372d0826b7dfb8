import { afterAll, beforeAll, expect, test } from "bun:test";
import { addKeyOf } from "../support/api-keys.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { StripeServer } from "../support/stripe-server.ts";

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

interface Plans {
  readonly data: readonly { plan: string; is_paid: boolean; price: object | null }[];
}

const pro = async () =>
  (await shown<Plans>("settings/plans")).data.find(({ plan }) => plan === "pro");

test("a paid plan has Stripe's price, in the units of its currency, and none while Stripe does not say", async () => {
  stripe.refuse = () => new Response("{}", { status: 500 });
  expect(await pro()).toMatchObject({ is_paid: true, price: null });
  stripe.refuse = undefined;
  stripe.price = { ...stripe.price, unit_amount: null };
  expect(await pro()).toMatchObject({ is_paid: true, price: null });
  stripe.price = { ...stripe.price, unit_amount: 2_900, currency: "jpy" };
  const price = { amount: 2_900, currency: "JPY", interval: "month", interval_count: 1 };
  expect(await pro()).toMatchObject({ price });
  const { data } = await shown<Plans>("settings/plans");
  expect(data.map(({ plan }) => plan)).toEqual(["free", "pro", "byok"]);
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
    const { data } = await shown<{ data: { name: string; sessions: number }[] }>(
      "settings/sign-in-keys",
    );
    return new Map(data.map(({ name, sessions: count }) => [name, count]));
  };
  const before = await list();
  expect([...before.keys()].toSorted()).toEqual(["Default management key", "second"]);
  expect(before.get("second")).toBe(2);
  await sessions[0]!.call("DELETE", "session");
  await gateway.sql`UPDATE dashboard_sessions SET last_used_at = now() - interval '61 minutes'
    WHERE key_id = (SELECT id FROM api_keys WHERE name = 'second')`;
  expect((await list()).get("second")).toBe(0);
  const foreign = await signIn(gateway, other.managementKey);
  const { data } = await shown<{ data: object[] }>("settings/sign-in-keys", foreign);
  expect(data).toHaveLength(1);
  expect(JSON.stringify(data)).not.toContain(other.managementKey);
});

test("sections of settings are pages, which find their files a folder above", async () => {
  const response = await fetch(`${gateway.baseUrl}/dashboard/settings/billing`);
  expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
  const [file] = /(?<=src=")[^"]*/.exec(await response.text())!;
  const script = await fetch(new URL(file, response.url));
  expect(script.headers.get("content-type")).toContain("javascript");
});
