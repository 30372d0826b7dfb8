import { expect, test } from "bun:test";
import { connectDatabase, type Database, type DatabaseTransaction } from "../../db/client.ts";
import { storeResultEffect } from "../../db/queries/idempotency.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import {
  changeMasterKey,
  noteKnownKeys,
  readMasterKey,
  sealingKeyId,
} from "../../db/queries/master-key.ts";
import { findWebhook, insertWebhook, replaceWebhookSecret } from "../../db/queries/webhooks.ts";
import { newId } from "../../src/lib/ids.ts";
import { Keyring, masterKeyId } from "../../src/lib/keyring.ts";
import { MasterKeyError, recordKnownKeys } from "../../src/platform/master-key/master-key.ts";
import { WebhookSecrets } from "../../src/webhooks/webhook-secrets.ts";
import { runCliHere, spawnCli } from "../cli/cli-runs.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import { addOrganization } from "../webhooks/many-hooks.ts";
import { NEW, OLD, rotationSettings, standing } from "./rotation.ts";
import { beforeEachOnDatabase, openedBy, type SealedDatabase } from "./sealed-database.ts";

const TIMEOUT_MS = 60_000;

let database: SealedDatabase;
let sql: Database;
let settings: Record<string, string>;
/** Of an instance that knows both, and has not heard of a rotation. */
let keyring: Keyring;
let organizationId: string;
beforeEachOnDatabase(async (opened) => {
  database = opened;
  sql = database.sql;
  settings = rotationSettings(database.url);
  organizationId = await addOrganization(sql);
  await testKeyring(sql, OLD);
  const { salt, keyId } = (await readMasterKey(sql))!;
  keyring = new Keyring(salt, [NEW, OLD], keyId);
});

const claim = { keyId: "key_1", idempotencyKey: "a", bodyHash: "hash", requestId: newId("req") };
const insertClaim = () => sql`INSERT INTO idempotency_records
  (key_id, idempotency_key, body_hash, request_id, instance_id, epoch)
  VALUES ('key_1', 'a', 'hash', ${claim.requestId}, 'ins_1', 1)`;

const newWebhook = (organizationId: string) => ({
  id: newId("whk"),
  organizationId,
  url: "https://example.com/",
  events: ["*"],
  description: null,
  enabled: true,
  secret: new WebhookSecrets(keyring).sealing("a secret"),
  createdAtMs: Date.now(),
});

/** What writes a sealed value, as part of a transaction. */
const WRITERS: Record<string, (transaction: DatabaseTransaction) => Promise<unknown>> = {
  async webhook(transaction) {
    const webhook = newWebhook(organizationId);
    const secret = webhook.secret(await sealingKeyId(transaction)) as Buffer;
    await transaction`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, created_at)
      VALUES (${webhook.id}, ${organizationId}, ${webhook.url}, '{*}', true, ${secret}, now())`;
  },
  async result(transaction) {
    const body = (keyId: string) => keyring.sealUnder(keyId, Buffer.from("an answer"));
    await storeResultEffect(claim, { status: 200, headers: {}, body }, keyring, {
      isClaimNeeded: false,
    }).run(transaction);
  },
};

test.each(Object.keys(WRITERS))(
  "a rotation waits for whoever is just writing a sealed value, and seals it anew: %s",
  async (kind) => {
    await insertClaim();
    const writer = connectDatabase(database, { poolSize: 1, applicationName: "writer" });
    const mayEnd = Promise.withResolvers<void>();
    const hasWritten = Promise.withResolvers<void>();
    const written = writer.begin(async (transaction) => {
      await WRITERS[kind]!(transaction);
      hasWritten.resolve();
      await mayEnd.promise;
    });
    await hasWritten.promise;
    const rotation = spawnCli(settings, "master-key", "rotate", "--json");
    await until("it waits for the writer", async () => {
      const [row] = await sql<{ query: string }[]>`SELECT query FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'gateway-cli' AND wait_event_type = 'Lock'`;
      return row?.query.includes("previous_key_id IS NULL FOR UPDATE");
    });
    mayEnd.resolve();
    await written;
    expect(await rotation.exited).toBe(0);
    expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 1], lost: 0 });
    await writer.end();
  },
  TIMEOUT_MS,
);

test("a secret that is written behind a rotation by one who has not heard of it is under the new key", async () => {
  expect((await runCliHere(settings, "master-key", "rotate")).exitCode).toBe(0);
  await insertWebhook(sql, newWebhook(organizationId), 10);
  expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 1], lost: 0 });
});

test("a secret that is replaced behind a rotation takes those before it along to the new key", async () => {
  const secrets = new WebhookSecrets(keyring);
  const webhook = newWebhook(organizationId);
  await insertWebhook(sql, webhook, 10);
  const untilMs = Date.now() + 60_000;
  const replaceWith = (secret: string) =>
    replaceWebhookSecret(sql, { id: webhook.id, organizationId }, (held, keyId) => ({
      secret: secrets.sealing(secret)(keyId),
      previousSecret: secrets.sealingReplaced(held, Date.now(), untilMs)(keyId),
      previousSecretUntilMs: untilMs,
    }));
  await replaceWith("a second");
  expect((await runCliHere(settings, "master-key", "rotate")).exitCode).toBe(0);
  await replaceWith("a third");
  expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 2], lost: 0 });
  const found = await findWebhook(sql, { id: webhook.id, organizationId });
  const signing = secrets.signing(found!.sealed, Date.now());
  expect(signing).toEqual(["a third", "a second", "a secret"]);
});

test("a stored result too, once, and its writer knows from then on", async () => {
  expect((await runCliHere(settings, "master-key", "rotate")).exitCode).toBe(0);
  await insertClaim();
  const sealedUnder: string[] = [];
  const body = (keyId: string) => {
    sealedUnder.push(keyId);
    return keyring.sealUnder(keyId, Buffer.from("an answer"));
  };
  const oldId = keyring.sealingId;
  const effect = storeResultEffect(claim, { status: 200, headers: {}, body }, keyring, {
    isClaimNeeded: false,
  });
  await sql.begin((transaction) => effect.run(transaction));
  expect(effect.storesAnswer!()).toBe(true);
  expect(sealedUnder).toEqual([oldId, keyring.sealingId]);
  expect(keyring.sealingKey).toEqual(NEW);
  expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 1], lost: 0 });
  // Whoever was freed meanwhile keeps nothing.
  await sql`UPDATE idempotency_records SET request_id = 'another'`;
  await sql.begin((transaction) => effect.run(transaction));
  expect(effect.storesAnswer!()).toBe(false);
});

test("an instance that joins during a rotation without the new key is turned away, and leaves", async () => {
  const { salt, keyId } = (await readMasterKey(sql))!;
  const unknowing = new Keyring(salt, [OLD], keyId);
  expect((await runCliHere(settings, "master-key", "rotate")).exitCode).toBe(0);
  const instance = { id: newId("ins"), epoch: 1n };
  await insertInstance(sql, instance);
  await expect(recordKnownKeys(sql, instance, unknowing)).rejects.toBeInstanceOf(MasterKeyError);
  const [row] = await sql<{ alive: boolean }[]>`SELECT alive FROM instances`;
  expect(row!.alive).toBe(false);
});

test("an instance is told apart by the key before, too, until nothing is under that", async () => {
  const instance = { id: newId("ins"), epoch: 1n };
  await insertInstance(sql, instance);
  const { salt } = (await readMasterKey(sql))!;
  const [oldId, newKeyId] = [OLD, NEW].map((key) => masterKeyId(key, salt)) as [string, string];
  await sql`UPDATE master_key SET key_id = ${newKeyId}, previous_key_id = ${oldId}`;
  expect(await noteKnownKeys(sql, instance, [newKeyId])).toBe(false);
  expect(await noteKnownKeys(sql, instance, [oldId])).toBe(false);
  expect(await noteKnownKeys(sql, instance, [oldId, newKeyId])).toBe(true);
  await sql`UPDATE master_key SET previous_key_id = NULL`;
  expect(await noteKnownKeys(sql, instance, [newKeyId])).toBe(true);
});

test("no key takes the place of one that does not seal, nor of any while a change is not finished", async () => {
  const { salt, keyId: oldId, proof } = (await readMasterKey(sql))!;
  const newKeyId = masterKeyId(NEW, salt);
  const meanwhile = "another process has changed the master key";
  await expect(changeMasterKey(sql, newKeyId, { keyId: oldId, proof })).rejects.toThrow(meanwhile);
  expect(await changeMasterKey(sql, oldId, { keyId: newKeyId, proof })).toEqual([]);
  await expect(changeMasterKey(sql, newKeyId, { keyId: oldId, proof })).rejects.toThrow(meanwhile);
  expect(await standing(sql)).toEqual({ seals: "NEW", before: "OLD" });
});
