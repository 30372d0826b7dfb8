import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { PreparedOrganization } from "../../src/accounts/organizations/organizations.ts";
import { expectError, readEnvelope } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
let stranger: PreparedOrganization;
beforeAll(async () => {
  gateway = await startTestGateway();
  stranger = await gateway.addOrganization({ creditUsd: 2 });
});
afterAll(() => gateway.stop());

const send = (method: string, path: string, key: string, body?: unknown) =>
  gateway.request(method, path, body, { key });

/** Without the time of the last use, which the gateway writes some time after the use. */
async function keyRows(ids: readonly string[]): Promise<object[]> {
  const rows =
    await gateway.sql`SELECT * FROM api_keys WHERE id IN ${gateway.sql(ids)} ORDER BY id`;
  return rows.map(({ last_used_at: _, ...row }) => row);
}

const methods = [
  ["GET", undefined],
  ["PATCH", { name: "taken over", is_active: false }],
  ["DELETE", undefined],
] as const;

describe.each(methods)("%s of another organization's key", (method, body) => {
  test("is 404, in the very words of a key that never was, and changes nothing", async () => {
    const foreignIds = stranger.organization.keys.map(({ id }) => id);
    const before = await keyRows(foreignIds);
    const messages = new Set<string>();
    for (const key of [gateway.managementKey, gateway.secretKey]) {
      for (const id of [
        ...foreignIds,
        "key_00000000000000000000000000000000",
        "0",
        "'--",
        "%00",
        "a%00b",
      ]) {
        const { error } = await expectError(
          await send(method, `/v1/keys/${id}`, key, body),
          404,
          "key_not_found",
        );
        messages.add(error.message);
      }
    }
    expect([...messages]).toHaveLength(1);
    expect(await keyRows(foreignIds)).toEqual(before);
    expect((await send("GET", "/v1/keys", stranger.managementKey)).status).toBe(200);
  });
});

test("a list holds the keys of the caller's organization alone", async () => {
  const ids = async (key: string) => {
    const list = (await (await send("GET", "/v1/keys?limit=1000", key)).json()) as {
      data: { id: string }[];
      total: number;
    };
    expect(list.total).toBe(list.data.length);
    return new Set(list.data.map(({ id }) => id));
  };
  const own = await ids(gateway.managementKey);
  const foreign = await ids(stranger.managementKey);
  expect(foreign).toEqual(new Set(stranger.organization.keys.map(({ id }) => id)));
  expect([...own].filter((id) => foreign.has(id))).toEqual([]);
});

test("names of keys are the organization's own affair", async () => {
  const body = { name: "the same name" };
  for (const key of [gateway.managementKey, stranger.managementKey]) {
    expect((await send("POST", "/v1/keys", key, body)).status).toBe(201);
    expect((await readEnvelope(await send("POST", "/v1/keys", key, body))).error.code).toBe(
      "name_taken",
    );
  }
});

test("a key spends its own organization's credits and no other's", async () => {
  const balance = async (key: string) =>
    ((await (await send("GET", "/v1/credits", key)).json()) as { balance_usd: number }).balance_usd;
  const before = [await balance(gateway.secretKey), await balance(stranger.secretKey)];
  const chat = await send("POST", "/v1/chat/completions", stranger.secretKey, {
    model: "sandbox/chat",
    messages: [{ role: "user", content: "hi" }],
    max_tokens: 5,
  });
  expect(chat.status).toBe(200);
  expect(await balance(gateway.secretKey)).toBe(before[0]!);
  expect(await balance(stranger.secretKey)).toBeLessThan(before[1]!);
});
