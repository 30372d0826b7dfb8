import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../../support/chat-gateway.ts";
import { expectError } from "../../support/error-envelope.ts";
import { expectBooksClosed } from "../../support/ledger-checks.ts";
import { until } from "../../support/until.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const ON = { headers: { "x-gateway-cache": "on" } };

async function ask(slug: string, body: Record<string, unknown> = {}) {
  const response = await gateway.chat(slug, body, ON);
  await response.text();
  return {
    outcome: response.headers.get("x-gateway-cache"),
    key: response.headers.get("x-gateway-cache-key"),
  };
}

async function purge(query = "", key = gateway.managementKey): Promise<unknown> {
  const response = await gateway.request("DELETE", `/v1/cache${query}`, undefined, { key });
  expect(response.status).toBe(200);
  return response.json();
}

/** What the rows of the organization's cache come to, and what its totals say. */
async function totals() {
  const [row] = await gateway.sql`
    SELECT entries, bytes::int AS bytes, (SELECT count(*)::int FROM cached_answers a
        WHERE a.organization_id = c.organization_id) AS rows,
      (SELECT coalesce(sum(a.bytes), 0)::int FROM cached_answers a
        WHERE a.organization_id = c.organization_id) AS row_bytes
    FROM answer_caches c WHERE organization_id = ${gateway.organizationId}`;
  expect([row!.entries, row!.bytes]).toEqual([row!.rows, row!.row_bytes]);
  return row!.entries as number;
}

describe("a purge", () => {
  test("removes one answer by its key, those of a model, or all, and reports it", async () => {
    const [one, other] = [
      gateway.modelThat({ do: "complete" }),
      gateway.modelThat({ do: "complete" }),
    ];
    const { key } = await ask(one);
    await ask(one, { seed: 1 });
    await ask(other);
    expect(await purge(`?key=${key}`)).toEqual({ purged: 1 });
    expect((await ask(one, { seed: 1 })).outcome).toBe("hit");
    expect((await ask(one)).outcome).toBe("miss");
    // The model's name without its author, which it is known by too.
    expect(await purge(`?model=${one}`)).toEqual({ purged: 2 });
    expect((await ask(other)).outcome).toBe("hit");
    expect(await purge(`?model=test%2F${other}&key=${key}`)).toEqual({ purged: 0 });
    await ask(one);
    expect(await purge()).toEqual({ purged: 2 });
    expect((await ask(other)).outcome).toBe("miss");
    await totals();
    const events =
      await gateway.sql`SELECT data FROM outbox WHERE type = 'cache.purged' ORDER BY id`;
    expect(events.map(({ data }) => data.entries)).toEqual([1, 2, 0, 2]);
    const [{ id } = { id: "" }] = await gateway.sql`
      SELECT id FROM api_keys WHERE organization_id = ${gateway.organizationId} AND kind = 'management'`;
    expect(events[0]!.data.purged_by).toBe(id);
  });

  test("of one organization leaves the answers of another", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const { key } = await ask(slug);
    const { managementKey } = await gateway.addOrganization();
    for (const query of ["", `?key=${key}`, `?model=test/${slug}`]) {
      expect(await purge(query, managementKey)).toEqual({ purged: 0 });
    }
    expect((await ask(slug)).outcome).toBe("hit");
  });

  test("takes the scope, and a query that it knows", async () => {
    const scoped = await addSecretKey(gateway, { scopes: ["cache:manage"] });
    await purge("", scoped);
    const refuse = async (query: string, key: string, status: number, code: string) =>
      expectError(
        await gateway.request("DELETE", `/v1/cache${query}`, undefined, { key }),
        status,
        code,
      );
    const unscoped = await addSecretKey(gateway, { scopes: ["chat:completions"] });
    await refuse("", unscoped, 403, "missing_scope");
    for (const query of ["?all=true", "?key=abc", "?model=", "?model=a&model=b"]) {
      await refuse(query, scoped, 400, "invalid_query");
    }
  });

  test.each([[{}], [{ stream: true }]])(
    "keeps %j from being kept that was asked for before it",
    async (body) => {
      const slug = gateway.modelThat({ do: "complete", firstDelayMs: 300 }, { do: "complete" });
      const asked = ask(slug, body);
      await until("the provider is asked", () => gateway.upstream.servedOf(slug).length === 1);
      await purge();
      expect((await asked).outcome).toBe("miss");
      expect((await ask(slug, body)).outcome).toBe("miss");
      expect((await ask(slug, body)).outcome).toBe("hit");
    },
  );
});

test("purges and answers at once leave no answer from before the last purge, and totals that are true", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const asks = Array.from({ length: 60 }, (_, n) => ask(slug, { seed: n % 6 }));
  const purges = Array.from({ length: 10 }, () => purge());
  await Promise.all([...asks, ...purges]);
  await totals();
  await purge();
  expect(await totals()).toBe(0);
  for (let seed = 0; seed < 6; seed++) expect((await ask(slug, { seed })).outcome).toBe("miss");
  expect(await totals()).toBe(6);
});
