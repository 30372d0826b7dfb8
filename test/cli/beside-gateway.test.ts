import { afterAll, beforeAll, expect, test } from "bun:test";
import { usdText } from "../../src/lib/money.ts";
import { adjustCredit } from "../../src/main/cli/actions/organizations.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";
import { printed, runCliProcess } from "./cli-runs.ts";

const NANO_PER_USD = 1_000_000_000n;
/** In which a revoked key must be refused. */
const REVOCATION_MS = 1_000;
const CONCURRENT_ORDERS = 150;

let gateway: ChatGateway;
let settings: Record<string, string>;

beforeAll(async () => {
  gateway = await startChatGateway({ startingCreditUsd: 0 });
  settings = { DATABASE_URL: gateway.databaseUrl };
});
afterAll(() => gateway.stop());

const adjust = (organizationId: string, amount: string) =>
  runCliProcess(
    settings,
    ...["credits", "adjust", "--org", organizationId, "--description", "By hand"],
    ...["--amount-usd", amount, "--json"],
  );

async function balanceNano(organizationId: string): Promise<bigint> {
  const [row] = await gateway.sql<{ balance: bigint }[]>`
    SELECT credit_nano - posted_nano AS balance FROM accounts WHERE id = ${`org:${organizationId}`}`;
  return row!.balance;
}

test("credit that is added lets the very next request through", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  await expectError(await gateway.chat(slug), 402, "insufficient_credits");
  const added = printed<{ id: string }>(await adjust(gateway.organizationId, "5.000000001"));
  expect(added).toMatchObject({
    id: expect.stringMatching(/^txn_/),
    type: "adjustment",
    amount_usd: 5.000000001,
    balance_after_usd: 5.000000001,
    description: "By hand",
  } as never);
  expect((await gateway.chat(slug)).status).toBe(200);
  const listed = await gateway.request("GET", "/v1/credits/transactions?type=adjustment");
  const [transaction] = ((await listed.json()) as { data: unknown[] }).data;
  expect(transaction).toEqual({ ...added, kind: "adjustment" });
  await expectBooksClosed(gateway);
});

test("credit that is taken refuses the very next request", async () => {
  const { organization, secretKey } = await gateway.addOrganization({ creditUsd: 2 });
  const slug = gateway.modelThat({ do: "complete" });
  expect((await gateway.chat(slug, {}, { key: secretKey })).status).toBe(200);
  await expectBooksClosed(gateway);
  const rest = await balanceNano(organization.id);
  expect(printed(await adjust(organization.id, `-${usdText(rest)}`))).toMatchObject({
    balance_after_usd: 0,
  } as never);
  const refused = await gateway.chat(slug, {}, { key: secretKey });
  await expectError(refused, 402, "insufficient_credits");
});

test("what a running request holds cannot be deducted, all the rest can, to the nano-USD", async () => {
  const { organization, secretKey } = await gateway.addOrganization({ creditUsd: 4 });
  const slug = gateway.modelThat({ do: "stall-after-events", events: 8, afterEvents: 2 });
  const abort = new AbortController();
  const stream = await gateway.chat(
    slug,
    { stream: true },
    { key: secretKey, signal: abort.signal },
  );
  expect(stream.status).toBe(200);
  const reader = stream.body!.getReader();
  await reader.read();
  const held = await until("the stream's checkpoint", async () => {
    const rows = await gateway.sql<{ hold_nano: bigint }[]>`
      SELECT hold_nano FROM attempts WHERE organization_id = ${organization.id}`;
    return rows[0]?.hold_nano;
  });
  const free = 4n * NANO_PER_USD - held;
  const refused = await adjust(organization.id, `-${usdText(free + 1n)}`);
  expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
  expect(refused.stderr).toMatch(/^insufficient_credits: [^\n]+\n$/);
  expect(await balanceNano(organization.id)).toBe(4n * NANO_PER_USD);
  printed(await adjust(organization.id, `-${usdText(free)}`));
  expect(await balanceNano(organization.id)).toBe(held);
  const nextRead = reader.read();
  abort.abort();
  await expect(nextRead).rejects.toThrow();
  await expectBooksClosed(gateway);
});

test(`of ${CONCURRENT_ORDERS} orders at the same time those that are covered are carried out, the rest refused`, async () => {
  const { organization } = await gateway.addOrganization({ creditUsd: 100 });
  const outcomes = await Promise.allSettled(
    Array.from({ length: CONCURRENT_ORDERS }, () =>
      adjustCredit(
        gateway.sql,
        { organizationId: organization.id, amountNano: -NANO_PER_USD, description: "One of many" },
        { timeoutMs: 20_000, interrupted: new AbortController().signal },
      ),
    ),
  );
  const refusals = outcomes.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  expect(new Set(refusals.map(({ code, message }) => code ?? message))).toEqual(
    new Set(["insufficient_credits"]),
  );
  expect(refusals).toHaveLength(CONCURRENT_ORDERS - 100);
  expect(await balanceNano(organization.id)).toBe(0n);
  await expectBooksClosed(gateway);
});

test("a key that the operator creates works at once, within its scopes", async () => {
  const { organization } = await gateway.addOrganization({ creditUsd: 1 });
  const create = async (...options: string[]) =>
    printed<{ id: string; key: string }>(
      await runCliProcess(
        settings,
        ...["keys", "create", "--org", organization.id, "--json", ...options],
      ),
    );
  const slug = gateway.modelThat({ do: "complete" });
  const full = await create("--name", "full");
  expect((await gateway.chat(slug, {}, { key: full.key })).status).toBe(200);
  const narrow = await create("--name", "narrow", "--scopes", "models:read");
  await expectError(await gateway.chat(slug, {}, { key: narrow.key }), 403, "missing_scope");
  const management = await create("--name", "management", "--kind", "management");
  const listed = await gateway.request("GET", "/v1/keys", undefined, { key: management.key });
  const { data } = (await listed.json()) as { data: { id: string }[] };
  const ids = data.map(({ id }) => id);
  for (const { id } of [full, narrow, management]) expect(ids).toContain(id);
});

test("an organization that the operator creates works at once", async () => {
  const created = printed<{ secret_key: string; management_key: string }>(
    await runCliProcess(settings, "org", "create", "--name", "New", "--json"),
  );
  const slug = gateway.modelThat({ do: "complete" });
  expect((await gateway.chat(slug, {}, { key: created.secret_key })).status).toBe(200);
  const credits = await gateway.request("GET", "/v1/credits", undefined, {
    key: created.management_key,
  });
  expect(
    ((await credits.json()) as { lifetime_spend_usd: number }).lifetime_spend_usd,
  ).toBeGreaterThan(0);
});

test("a key in use is refused within a second of its revocation", async () => {
  const { organization, secretKey } = await gateway.addOrganization({ creditUsd: 1 });
  const slug = gateway.modelThat({ do: "complete" });
  expect((await gateway.chat(slug, {}, { key: secretKey })).status).toBe(200);
  const [key] = await gateway.sql<{ id: string }[]>`
    SELECT id FROM api_keys WHERE organization_id = ${organization.id} AND kind = 'secret'`;
  printed(await runCliProcess(settings, "keys", "revoke", key!.id, "--json"));
  const [row] = await gateway.sql<{ age_ms: number }[]>`
    SELECT extract(epoch FROM clock_timestamp() - deleted_at)::float8 * 1000 AS age_ms
    FROM api_keys WHERE id = ${key!.id}`;
  const refused = await until(
    "the refusal",
    async () => {
      const answer = await gateway.chat(slug, {}, { key: secretKey });
      return answer.status === 200 ? undefined : answer;
    },
    REVOCATION_MS - row!.age_ms,
  );
  await expectError(refused, 401, "invalid_api_key");
});
