import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const LIMIT = 600;
const get = (path: string, key: string) => gateway.request("GET", path, undefined, { key });
const chat = (key: string) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }] },
    { key },
  );

test("an organization makes 600 administrative calls a minute, whichever keys it makes them with", async () => {
  const { managementKey, secretKey } = await gateway.addOrganization();
  // Refused before they are counted: these are no calls of the organization's administration.
  await expectError(await get("/v1/keys?limit=0", managementKey), 400, "invalid_query");
  const statuses: number[] = [];
  const keys = [managementKey, secretKey];
  await Promise.all(
    Array.from({ length: 20 }, async (_, worker) => {
      for (let i = worker; i < LIMIT + 20; i += 20) {
        const path = i % 3 === 0 ? "/v1/credits" : "/v1/webhooks";
        statuses.push((await get(path, keys[i % 2]!)).status);
      }
    }),
  );
  expect(statuses.filter((status) => status === 200)).toHaveLength(LIMIT);
  expect(statuses.filter((status) => status === 429)).toHaveLength(20);
  const refused = await get("/v1/keys", managementKey);
  const retryAfterSeconds = Number(refused.headers.get("retry-after"));
  expect(Number.isInteger(retryAfterSeconds)).toBe(true);
  expect(retryAfterSeconds).toBeGreaterThanOrEqual(1);
  expect(retryAfterSeconds).toBeLessThanOrEqual(61);
  await expectError(refused, 429, "rate_limit_exceeded");
  const create = await gateway.request(
    "POST",
    "/v1/keys",
    { name: "late" },
    { key: managementKey },
  );
  await expectError(create, 429, "rate_limit_exceeded");

  // Models, the catalogue, files and the key itself are no administration; nor is another organization.
  expect((await chat(secretKey)).status).toBe(200);
  for (const path of ["/v1/models", "/v1/files", "/v1/key"]) {
    expect((await get(path, secretKey)).status).toBe(200);
  }
  expect((await get("/v1/keys", gateway.managementKey)).status).toBe(200);
  const operator = await addOperator(gateway);
  expect((await get("/v1/admin/organizations", operator)).status).toBe(200);
}, 60_000);
