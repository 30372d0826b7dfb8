import { afterAll, beforeAll, expect, test } from "bun:test";
import { hostname, userInfo } from "node:os";
import { sqlState } from "../../db/client.ts";
import { listAuditLog, removeOldActs } from "../../db/queries/audit-log.ts";
import { cliJson, runCliHere } from "../cli/cli-runs.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";

let database: OpenTestDatabase;
let environment: Record<string, string>;

beforeAll(async () => {
  database = await openTestDatabase(1);
  environment = { DATABASE_URL: database.url };
});
afterAll(() => database.drop());

const acts = (filter: { action?: string; organizationId?: string } = {}) =>
  listAuditLog(database.sql, {
    organizationId: filter.organizationId,
    action: filter.action,
    actorId: undefined,
    objectType: undefined,
    objectId: undefined,
    fromMs: undefined,
    beforeMs: undefined,
    after: undefined,
    limit: 50,
  });

test("acts on the command line are those of its user", async () => {
  const { organization } = await cliJson<{ organization: { id: string } }>(
    environment,
    ...["org", "create", "--name", "Acme"],
  );
  const { id: organizationId } = organization;
  await cliJson(environment, "org", "update", "--org", organizationId, "--credit-limit-usd", "5");
  const adjust = ["credits", "adjust", "--org", organizationId, "--amount-usd", "2.5"];
  await cliJson(environment, ...adjust, "--description", "Invoice 17");
  const key = await cliJson<{ id: string }>(
    environment,
    ...["keys", "create", "--org", organizationId, "--name", "server"],
  );
  await cliJson(environment, "keys", "revoke", key.id);
  const operator = await cliJson<{ id: string }>(
    environment,
    ...["keys", "create", "--kind", "operator", "--name", "Ops"],
  );
  await cliJson(environment, "keys", "revoke", operator.id);
  const { username } = userInfo();
  const all = await acts();
  expect(all.map(({ action }) => action)).toEqual([
    "operator_key.deleted",
    "operator_key.created",
    "key.deleted",
    "key.created",
    "credits.adjusted",
    "organization.updated",
    "key.created",
    "key.created",
    "organization.created",
  ]);
  for (const { actor } of all) {
    expect(actor).toMatchObject({ kind: "cli", id: username, name: `${username}@${hostname()}` });
  }
  expect(all[4]).toMatchObject({
    organizationId,
    after: { amount_usd: 2.5, description: "Invoice 17" },
  });
  expect(all[5]).toMatchObject({
    before: { credit_limit_usd: 0 },
    after: { credit_limit_usd: 5 },
  });
});

test("entries are neither changed nor deleted, and removed by their age alone", async () => {
  const { sql } = database;
  const before = await acts();
  expect(before.length).toBeGreaterThan(0);
  for (const attempt of [
    sql`UPDATE audit_log SET action = 'key.updated'`,
    sql`DELETE FROM audit_log`,
    sql`TRUNCATE audit_log`,
  ]) {
    const refused = await attempt.then(
      () => undefined,
      (error: unknown) => sqlState(error),
    );
    expect(refused).toBe("42501");
  }
  await sql`INSERT INTO audit_log (id, action, object_type, actor, created_at)
    VALUES ('act_0', 'key.created', 'key', '{"kind": "system"}', now() - interval '401 days'),
      ('act_00', 'key.created', 'key', '{"kind": "system"}', now() - interval '399 days')`;
  expect(await removeOldActs(sql, 400)).toBe(false);
  expect((await acts()).map(({ id }) => id)).toEqual([...before.map(({ id }) => id), "act_00"]);
});

test("an act and its entry stand or fall together", async () => {
  const { sql } = database;
  const before = await acts();
  const rolledBack = sql.begin(async (transaction) => {
    await transaction`UPDATE organizations SET name = 'Other'`;
    throw new Error("rolled back");
  });
  await rolledBack.catch(() => {});
  expect(await acts()).toEqual(before);
  // An entry that cannot be written takes its act with it.
  await sql`ALTER TABLE audit_log ADD CONSTRAINT none CHECK (action <> 'plan.changed')`;
  const organizationId =
    before.at(-1)!.organizationId ?? before.find(({ organizationId: id }) => id)!.organizationId!;
  const refused = await runCliHere(
    environment,
    "org",
    "update",
    "--org",
    organizationId,
    "--plan",
    "pro",
  );
  expect(refused.exitCode).not.toBe(0);
  const [row] = await sql`SELECT plan FROM organizations WHERE id = ${organizationId}`;
  expect(row!.plan).toBe("free");
});
