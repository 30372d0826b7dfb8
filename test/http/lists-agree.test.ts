import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { listKeys } from "../../db/queries/api-keys.ts";
import { listTransactions } from "../../db/queries/credit-list.ts";
import { listWebhooks } from "../../db/queries/webhooks.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

type Call = (...parameters: unknown[]) => unknown;

/** The database, where something happens after each statement that counts. */
function withAfterCount(sql: Database, happen: () => Promise<void>): Database {
  const wrap = (target: object): object =>
    new Proxy(target, {
      apply(call, self, parameters) {
        const query = Reflect.apply(call as Call, self, parameters);
        const [texts] = parameters as [readonly string[]];
        if (!texts.join("").includes("count(*)")) return query;
        return (query as Promise<unknown>).then(async (rows) => {
          await happen();
          return rows;
        });
      },
      get(one, name) {
        const member = Reflect.get(one, name);
        if (name !== "begin") return member;
        return (options: string, work: (transaction: object) => unknown) =>
          (member as Call).call(one, options, (transaction: object) => work(wrap(transaction)));
      },
    });
  return wrap(sql) as Database;
}

const made = (path: string, body: object) => async (): Promise<void> => {
  const key = path.startsWith("/v1/chat") ? gateway.secretKey : gateway.managementKey;
  const response = await gateway.request("POST", path, body, { key });
  expect(response.status).toBeLessThan(300);
  await response.text();
};

const chat = made("/v1/chat/completions", {
  model: "sandbox/chat",
  messages: [{ role: "user", content: "x" }],
});
const key = () => made("/v1/keys", { name: crypto.randomUUID() })();
const webhook = made("/v1/webhooks", { url: "https://example.com/", events: ["*"] });

test.each<
  [string, () => Promise<void>, (sql: Database) => Promise<{ total: number; length: number }>]
>([
  [
    "transactions",
    chat,
    async (sql) => {
      const span = { type: "usage", fromMs: undefined, beforeMs: undefined };
      const page = { organizationId: gateway.organizationId, limit: 100, offset: 0, ...span };
      const { transactions, total } = await listTransactions(sql, page);
      return { total, length: transactions.length };
    },
  ],
  [
    "keys",
    key,
    async (sql) => {
      const days = { isActive: undefined, day: "2026-01-01", monthStart: "2026-01-01" };
      const page = { organizationId: gateway.organizationId, limit: 100, offset: 0, ...days };
      const { keys, total } = await listKeys(sql, page);
      return { total, length: keys.length };
    },
  ],
  [
    "webhooks",
    webhook,
    async (sql) => {
      const page = { organizationId: gateway.organizationId, limit: 100, offset: 0 };
      const { webhooks, total } = await listWebhooks(sql, page);
      return { total, length: webhooks.length };
    },
  ],
])(
  "a page of %s and their number tell of one moment, though there are more in the next",
  async (_, make, list) => {
    await make();
    const { total, length } = await list(withAfterCount(gateway.sql, make));
    expect(length).toBe(total);
    const after = await list(gateway.sql);
    expect(after).toEqual({ total: total + 1, length: length + 1 });
  },
);

test("all transactions are listed without being counted, however many they are", async () => {
  const page = { organizationId: gateway.organizationId, limit: 2, type: undefined };
  const span = { fromMs: undefined, beforeMs: undefined };
  const sql = withAfterCount(gateway.sql, () => Promise.reject(new Error("they were counted")));
  const [count] = await gateway.sql<
    { total: bigint }[]
  >`SELECT count(*) AS total FROM transactions`;
  const total = Number(count!.total);
  for (const [offset, length] of [
    [0, 2],
    [total - 1, 1],
    [total, 0],
    [Number.MAX_SAFE_INTEGER, 0],
  ] as const) {
    const { transactions, ...rest } = await listTransactions(sql, {
      ...page,
      ...span,
      offset,
    });
    const hasMore = offset + length < total;
    expect({ length: transactions.length, ...rest }).toEqual({ length, total, hasMore });
  }
});
