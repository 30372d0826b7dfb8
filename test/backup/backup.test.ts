import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { runCliProcess } from "../cli/cli-runs.ts";
import { brokenRules } from "../crash/books.ts";
import { createEmptyDatabase, type TestDatabase } from "../support/database.ts";
import {
  countFiles,
  type FilesGateway,
  getContent,
  startFilesGateway,
} from "../support/files-gateway.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY, type Receiver, startReceiver } from "../webhooks/receiver.ts";
import { type Seen, startLoad } from "./under-load.ts";

const TIMEOUT_MS = 180_000;
/** What the clients have before the backup begins. */
const MANY = 40;

const folder = mkdtempSync(join(tmpdir(), "gateway-backup-"));
const archive = join(folder, "under-load.tar");
const restoredDir = join(folder, "restored");
const masterKey = Buffer.from(MASTER_KEY).toString("base64");

let receiver: Receiver;
let source: FilesGateway;
let seen: Seen;
let before: { answered: readonly string[]; files: readonly string[] };
let target: TestDatabase;
let restored: TestGateway;
let rows: Database;

beforeAll(async () => {
  receiver = startReceiver();
  source = await startFilesGateway("disk", {
    environment: LOCAL_DELIVERY,
    startingCreditUsd: 1000,
  });
  const webhook = await source.request(
    "POST",
    "/v1/webhooks",
    { url: receiver.url, events: ["*"] },
    { key: source.managementKey },
  );
  expect(webhook.status).toBe(201);
  await source.sql`INSERT INTO dashboard_sessions (token_hash, kind, key_id, created_at, last_used_at)
    VALUES ('session', 'organization', 'key', now(), now())`;
  // As in a cluster that has counted far more transactions than the one of the restore will have.
  await source.sql`UPDATE webhook_queues SET numbered = '90000000:90000000:'`;
  const load = startLoad(source);
  seen = load.seen;
  await until(
    "the load is under way",
    () => seen.answered.length >= MANY && seen.uploaded.size >= MANY / 4,
    60_000,
  );
  before = {
    answered: seen.answered.map(({ requestId }) => requestId),
    files: [...seen.uploaded.keys()].filter((id) => !seen.deleted.has(id)),
  };
  const made = await runCliProcess(
    { DATABASE_URL: source.databaseUrl, DATA_DIR: source.dataDir },
    "backup",
    archive,
  );
  expect(made).toMatchObject({ exitCode: 0 });
  await load.stop();
  target = await createEmptyDatabase();
  const put = await runCliProcess(
    { DATABASE_URL: target.url, DATA_DIR: restoredDir, GATEWAY_MASTER_KEY: masterKey },
    "restore",
    archive,
  );
  expect(put).toMatchObject({ exitCode: 0 });
  rows = connectDatabase(target, { poolSize: 1, applicationName: "test" });
}, TIMEOUT_MS);
afterAll(async () => {
  await rows?.end();
  await restored?.stop();
  await source?.stop();
  await receiver?.stop();
  rmSync(folder, { recursive: true, force: true });
}, TIMEOUT_MS);

test("a backup under load costs no request, and holds the ledger of one moment", async () => {
  expect(seen.failures).toBe(0);
  const ledgerOf = (sql: Database, upTo: string) => sql`
    SELECT count(*)::text AS transactions, md5(string_agg(t::text, ',' ORDER BY organization_id, sequence)) AS digest
    FROM transactions t WHERE organization_id = ${source.organizationId} AND sequence <= ${upTo}::bigint`;
  const [last] = await rows<{ sequence: string }[]>`
    SELECT max(sequence)::text AS sequence FROM transactions
    WHERE organization_id = ${source.organizationId}`;
  expect([...(await ledgerOf(rows, last!.sequence))]).toEqual([
    ...(await ledgerOf(source.sql, last!.sequence)),
  ]);
  const charged = await rows<{ request_id: string }[]>`SELECT request_id FROM transactions
    WHERE request_id = ANY (${rows.array([...before.answered])}::text[])`;
  expect(charged).toHaveLength(before.answered.length);
  const [sessions] = await rows`SELECT count(*)::int AS count FROM dashboard_sessions`;
  expect(sessions!.count).toBe(0);
});

test("a gateway on what was restored ends what ran, and serves the old key", async () => {
  restored = await startTestGateway({
    database: target,
    environment: { ...LOCAL_DELIVERY, DATA_DIR: restoredDir },
  });
  const answer = await restored.request(
    "POST",
    "/v1/chat/completions",
    { model: "sandbox/chat", messages: [{ role: "user", content: "Hello" }] },
    { key: source.secretKey },
  );
  expect(answer.status).toBe(200);
  await until("nothing is held, and usage is that of the ledger", async () => {
    const [left] = await rows<{ count: number }[]>`
      SELECT (SELECT count(*) FROM holds)::int + (SELECT count(*) FROM attempts)::int AS count`;
    return left!.count === 0 && (await brokenRules(rows)).length === 0;
  });
}, 60_000);

test("each file of that moment is there, byte for byte, and no other", async () => {
  const files = await rows<{ id: string }[]>`SELECT id FROM files WHERE storage_key IS NOT NULL`;
  const ids = files.map(({ id }) => id);
  for (const id of before.files) expect(ids).toContain(id);
  for (const id of ids) {
    const content = await restored.request("GET", `/v1/files/${id}/content`, undefined, {
      key: source.secretKey,
    });
    expect(content.status).toBe(200);
    const hash = new Bun.CryptoHasher("sha256").update(await content.arrayBuffer()).digest("hex");
    expect(hash).toBe(seen.uploaded.get(id)!);
  }
  expect(await countFiles(restoredDir)).toBe(ids.length);
  // The original removes what was deleted, which waited for the backup, and has its other files.
  const [kept] = [...seen.uploaded.keys()].filter((id) => !seen.deleted.has(id));
  expect((await getContent(source, kept!)).status).toBe(200);
}, 60_000);

test("stored responses can be read, their events come with the same ids, and new ones come too", async () => {
  const answered = new Set(before.answered);
  const stored = seen.answered.filter((one) => one.responseId && answered.has(one.requestId));
  expect(stored.length).toBeGreaterThan(0);
  for (const { responseId } of stored) {
    const read = await restored.request("GET", `/v1/responses/${responseId}`, undefined, {
      key: source.secretKey,
    });
    expect(read.status).toBe(200);
  }
  const created = await restored.request(
    "POST",
    "/v1/keys",
    { name: "Behind the restore" },
    { key: source.managementKey },
  );
  const { id } = (await created.json()) as { id: string };
  const isOfKey = ({ event }: Receiver["received"][number]) => JSON.stringify(event).includes(id);
  await until("the event of the new key", () => receiver.received.some(isOfKey), 20_000);
  const known = await source.sql<{ event_id: string }[]>`SELECT event_id FROM outbox`;
  const fresh = await rows<{ event_id: string }[]>`SELECT event_id FROM outbox`;
  const ids = new Set([...known, ...fresh].map((row) => row.event_id));
  for (const { event } of receiver.received) expect(ids.has(event.id)).toBeTrue();
}, 60_000);

test("an archive is private, has its name once it is whole, and never takes the place of a file", async () => {
  expect(readdirSync(folder).filter((name) => name.includes("tar"))).toEqual(["under-load.tar"]);
  expect(statSync(archive).mode & 0o777).toBe(0o600);
  const again = await runCliProcess({ DATABASE_URL: source.databaseUrl }, "backup", archive);
  expect(again).toMatchObject({ exitCode: 2, stderr: `${archive} already exists\n` });
});
