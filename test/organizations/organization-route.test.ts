import { afterAll, beforeAll, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { CHAT, fileOf } from "../support/file-uploads.ts";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

const GIGABYTE = 1024 ** 3;

let gateway: FilesGateway;
let operator: string;
beforeAll(async () => {
  gateway = await startFilesGateway();
  operator = await addOperator(gateway);
});
afterAll(() => gateway.stop());

const ask = (key: string) => gateway.request("GET", "/v1/organization", undefined, { key });

async function organization(key: string): Promise<Record<string, unknown>> {
  const response = await ask(key);
  expect(response.status).toBe(200);
  return (await response.json()) as Record<string, unknown>;
}

async function change(id: string, body: unknown): Promise<void> {
  const path = `/v1/admin/organizations/${id}`;
  const response = await gateway.request("PATCH", path, body, { key: operator });
  expect(response.status).toBe(200);
}

test("shows what the plan gives, and nothing that only operators see", async () => {
  const { managementKey, organization: made } = await gateway.addOrganization({ plan: "pro" });
  expect(await organization(managementKey)).toEqual({
    id: made.id,
    name: made.name,
    plan: "pro",
    fee_percent: 2.5,
    credit_limit_usd: 0,
    file_quota_bytes: 1024 * GIGABYTE,
    file_used_bytes: 0,
    max_keys: 100_000,
    max_webhooks: 100,
    key_count: 2,
    computer_use: false,
    suspended: false,
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
  });
});

test("follows what operators change, at the next request", async () => {
  const { managementKey, organization: made } = await gateway.addOrganization({ plan: "free" });
  const settings = {
    name: "Renamed",
    fee_percent: 1.25,
    credit_limit_usd: 12.5,
    file_quota_bytes: 4_096,
    max_keys: 7,
    max_webhooks: 3,
    computer_use: true,
  };
  await change(made.id, settings);
  expect(await organization(managementKey)).toMatchObject({ ...settings, plan: "free" });
  await change(made.id, { plan: "enterprise", fee_percent: null, credit_limit_usd: null });
  expect(await organization(managementKey)).toMatchObject({
    plan: "enterprise",
    fee_percent: 0,
    credit_limit_usd: null,
  });
});

test("counts keys and stored bytes of its own organization alone", async () => {
  const before = await organization(gateway.secretKey);
  const { managementKey } = await gateway.addOrganization();
  const form = new FormData();
  form.set("purpose", "fine-tune");
  form.set("file", fileOf(CHAT, "chat.jsonl"));
  const uploaded = await fetch(`${gateway.baseUrl}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${gateway.secretKey}` },
    body: form,
  });
  expect(uploaded.status).toBe(200);
  const { id, bytes } = (await uploaded.json()) as { id: string; bytes: number };
  await addSecretKey(gateway, { scopes: ["usage:read"] });
  expect(await organization(gateway.secretKey)).toEqual({
    ...before,
    key_count: (before.key_count as number) + 1,
    file_used_bytes: bytes,
  });
  expect(await organization(managementKey)).toMatchObject({ key_count: 2, file_used_bytes: 0 });
  expect((await gateway.request("DELETE", `/v1/files/${id}`)).status).toBe(200);
  expect(await organization(gateway.secretKey)).toMatchObject({ file_used_bytes: 0 });
});

test("a suspended organization is refused", async () => {
  const { managementKey, organization: made } = await gateway.addOrganization();
  await change(made.id, { suspended: true });
  await expectError(await ask(managementKey), 403, "organization_suspended");
});

test("takes no query", async () => {
  const response = await gateway.request("GET", "/v1/organization?id=org_1");
  await expectError(response, 400, "invalid_query");
});
