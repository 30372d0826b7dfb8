import { afterAll, beforeAll, expect, test } from "bun:test";
import { revokeOperatorKey } from "../../db/queries/operator-keys.ts";
import { addOperatorKey } from "../../src/accounts/organizations/organizations.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const list = (key: string) => gateway.request("GET", "/v1/admin/organizations", undefined, { key });

test("an operator key is stored as a hash, and is over at once when it is revoked", async () => {
  const { key, secret } = await addOperatorKey(gateway.sql, { name: "Ops", nowMs: Date.now() });
  expect((await list(secret)).status).toBe(200);
  const rows = await gateway.sql`SELECT * FROM operator_keys WHERE id = ${key.id}`;
  expect(JSON.stringify(rows)).not.toContain(secret.slice(0, 20));
  expect(key.keyPrefix).toBe(`${secret.slice(0, 15)}…`);
  expect(await revokeOperatorKey(gateway.sql, key.id)).toBe(true);
  await expectError(await list(secret), 401, "invalid_api_key");
  expect(await revokeOperatorKey(gateway.sql, key.id)).toBe(false);
  // The environment that made it does not bring it back.
  await addOperatorKey(gateway.sql, { name: "Ops", secret, nowMs: Date.now() });
  await expectError(await list(secret), 401, "invalid_api_key");
});

test("an operator key that is made up, mistyped, or of another case is 401 everywhere", async () => {
  const { secret } = await addOperatorKey(gateway.sql, { name: "Ops", nowMs: Date.now() });
  const wrong = [
    generateApiKey("operator").key,
    `${secret.slice(0, -1)}${secret.endsWith("a") ? "b" : "a"}`,
    secret.replace("gateway_op_", "GATEWAY_OP_"),
    secret.replace("gateway_op_", "gateway_mgmt_"),
    `${secret} `.repeat(2),
  ];
  for (const key of wrong) {
    for (const path of ["/v1/admin/organizations", "/v1/keys", "/v1/models"]) {
      const response = await gateway.request("GET", path, undefined, { key });
      await expectError(response, 401, "invalid_api_key");
    }
  }
});

test("an operator key is in no organization's list, and no key of one can find, change or delete it", async () => {
  const { key } = await addOperatorKey(gateway.sql, { name: "Hidden", nowMs: Date.now() });
  for (const caller of [gateway.managementKey, gateway.secretKey]) {
    const listed = await gateway.request("GET", "/v1/keys?limit=1000", undefined, { key: caller });
    expect(await listed.text()).not.toContain(key.id);
    const path = `/v1/keys/${key.id}`;
    await expectError(
      await gateway.request("GET", path, undefined, { key: caller }),
      404,
      "key_not_found",
    );
    await expectError(
      await gateway.request("PATCH", path, { name: "x" }, { key: caller }),
      404,
      "key_not_found",
    );
    await expectError(
      await gateway.request("DELETE", path, undefined, { key: caller }),
      404,
      "key_not_found",
    );
  }
});

test("no request makes an operator or management key by its body", async () => {
  for (const body of [
    { name: "x", kind: "operator" },
    { name: "x", kind: "management" },
    { name: "x", organization_id: "org_other" },
    { name: "x", key: generateApiKey("management").key },
  ]) {
    const response = await gateway.request("POST", "/v1/keys", body, {
      key: gateway.managementKey,
    });
    await expectError(response, 400, "invalid_body");
  }
});
