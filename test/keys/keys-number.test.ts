import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const create = (key: string) =>
  gateway.request("POST", "/v1/keys", { name: crypto.randomUUID() }, { key });

const keyCount = async (organizationId: string): Promise<number> => {
  const [row] = await gateway.sql<{ key_count: number }[]>`
    SELECT key_count FROM organizations WHERE id = ${organizationId}`;
  return row!.key_count;
};

test("the number of an organization's keys follows creations and deletions, each counted once", async () => {
  const { organization, managementKey } = await gateway.addOrganization();
  expect(await keyCount(organization.id)).toBe(2);
  const { id } = (await (await create(managementKey)).json()) as { id: string };
  expect(await keyCount(organization.id)).toBe(3);
  const remove = () =>
    gateway.request("DELETE", `/v1/keys/${id}`, undefined, { key: managementKey });
  await Promise.all([remove(), remove(), remove()]);
  await remove();
  expect(await keyCount(organization.id)).toBe(2);
});

test("of 200 keys made at once with room for one, one is made", async () => {
  const { organization, managementKey } = await gateway.addOrganization();
  await gateway.sql`UPDATE organizations SET max_keys = 3 WHERE id = ${organization.id}`;
  const responses = await Promise.all(Array.from({ length: 200 }, () => create(managementKey)));
  const statuses = Map.groupBy(responses, ({ status }) => status);
  expect(statuses.get(201)).toHaveLength(1);
  expect(statuses.get(403)).toHaveLength(199);
  await expectError(statuses.get(403)![0]!, 403, "quota_exceeded");
  expect(await keyCount(organization.id)).toBe(3);
  const [events] = await gateway.sql<{ count: number }[]>`
    SELECT count(*)::int AS count FROM outbox
    WHERE organization_id = ${organization.id} AND type = 'key.created'`;
  expect(events!.count).toBe(1);
});

test("an organization has room for 100,000 keys, and deleted ones leave theirs", async () => {
  const { organization, managementKey } = await gateway.addOrganization();
  await gateway.sql`UPDATE organizations SET key_count = 99999 WHERE id = ${organization.id}`;
  const made = await create(managementKey);
  expect(made.status).toBe(201);
  await expectError(await create(managementKey), 403, "quota_exceeded");
  const { id } = (await made.json()) as { id: string };
  await gateway.request("DELETE", `/v1/keys/${id}`, undefined, { key: managementKey });
  expect((await create(managementKey)).status).toBe(201);
});
