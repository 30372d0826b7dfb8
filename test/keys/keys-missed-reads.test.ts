import { afterAll, beforeAll, expect, test } from "bun:test";
import { CHANGES_CHANNEL, type ChangeKind } from "../../db/queries/changes.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { until } from "../support/until.ts";

/*
 * One read that misses a row must not refuse what exists for longer than a moment, although no change of it
 * is reported afterwards.
 */

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const chat = () =>
  gateway.request("POST", "/v1/chat/completions", {
    model: "sandbox/chat",
    messages: [{ role: "user", content: "hi" }],
  });

async function status(): Promise<number> {
  const response = await chat();
  await response.arrayBuffer();
  return response.status;
}

/** Hides a row from the reads that a reported change causes, and brings it back in silence. */
async function missOnce(kind: ChangeKind, id: string, hide: string, show: string): Promise<void> {
  expect(await status()).toBe(200);
  await gateway.sql.unsafe(hide);
  // Without a row in `changes`, which the heartbeat would report once more.
  await gateway.sql`SELECT pg_notify(${CHANGES_CHANNEL}, ${`${kind} ${id}`})`;
  await until("the row is missed", async () => (await status()) !== 200);
  await gateway.sql.unsafe(show);
  const elapsedMs = startStopwatch();
  await until("the row is found again", async () => (await status()) === 200);
  expect(elapsedMs()).toBeLessThan(3_000);
}

test("a key whose row one read has missed is valid again within a second", async () => {
  const [key] = await gateway.sql<{ id: string }[]>`
    SELECT id FROM api_keys WHERE organization_id = ${gateway.organizationId} AND kind = 'secret'`;
  const { id } = key!;
  await missOnce(
    "api-key",
    id,
    `UPDATE api_keys SET deleted_at = now() WHERE id = '${id}'`,
    `UPDATE api_keys SET deleted_at = NULL WHERE id = '${id}'`,
  );
});

test("an organization whose row one read has missed has its money again within a second", async () => {
  const id = gateway.organizationId;
  await missOnce(
    "organization",
    id,
    `UPDATE accounts SET id = 'hidden:${id}' WHERE id = 'org:${id}'`,
    `UPDATE accounts SET id = 'org:${id}' WHERE id = 'hidden:${id}'`,
  );
});
