import { afterAll, beforeAll, expect, test } from "bun:test";
import { readContents } from "../../db/queries/batch-lines.ts";
import { removeOldIdempotencyRecords } from "../../db/queries/idempotency.ts";
import type { CallOutcome } from "../../src/inference/call/call.ts";
import type { PaidRoute } from "../../src/inference/endpoints/paid-route.ts";
import { LineCalls } from "../../src/jobs/batches/line-call.ts";
import { LineRun } from "../../src/jobs/batches/line-run.ts";
import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import type { BatchRecord } from "../../src/lib/batch.ts";
import { type Clock, systemClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { newId } from "../../src/lib/ids.ts";
import { type Books, openBooks } from "../ledger/books.ts";
import { CHATS, chatLine, requestLine } from "../support/batches.ts";
import { testKeyring } from "../support/master-key.ts";
import { openSemaphore } from "../support/open-semaphore.ts";
import { until } from "../support/until.ts";

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

interface RunOptions {
  readonly call: () => Promise<CallOutcome>;
  readonly readInput: () => Promise<ReadableStream<Uint8Array>>;
  readonly batch?: Partial<BatchRecord>;
  readonly clock?: Clock;
}

async function runOf({
  call,
  readInput,
  batch,
  clock = systemClock,
}: RunOptions): Promise<LineRun> {
  const route = {
    method: "POST",
    path: CHATS,
    access: { kind: "public" },
    body: {},
    direct: { run: call },
  };
  const calls = new LineCalls({
    routes: [route as unknown as PaidRoute],
    inFlight: { begin() {}, end() {}, isStopping: false },
    usableKey: async () => ({ organizationId: "org_1" }) as ApiKeyRecord,
    note() {},
  });
  const never = new AbortController().signal;
  return new LineRun(
    {
      ...{ sql: books.sql, keyring: await testKeyring(books.sql), clock, calls },
      ...{ slots: openSemaphore(32, 16), isBusy: () => false, readInput },
      guarded: (write) => books.sql.begin((sql) => write(sql)) as never,
      ...{ abandoned: never, ended: never },
    },
    {
      ...{ id: newId("batch"), organizationId: "org_1", keyId: "key_1", endpoint: CHATS },
      ...batch,
    } as BatchRecord,
  );
}

const whole = (body: string): CallOutcome => ({ kind: "whole", headers: {}, body });

test("where the input breaks off, a run ends behind the calls that it has begun", async () => {
  const { promise: goOn, resolve: answer } = Promise.withResolvers<void>();
  let begun = 0;
  let ended = 0;
  const call = async (): Promise<CallOutcome> => {
    begun++;
    await goOn;
    ended++;
    return whole("{}");
  };
  // So long that the two are called before more is read.
  const lines = ["a", "b"].map((id) => requestLine(id, { text: id.repeat(2_200_000) })).join("");
  let reads = 0;
  const readInput = async () =>
    new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          if (reads++ === 0) controller.enqueue(new TextEncoder().encode(lines));
          else controller.error(new Error("the storage is away"));
        },
      },
      { highWaterMark: 0 },
    );
  const run = (await runOf({ call, readInput })).run(new Set()).then(() => "");
  let isOver = false;
  const over = run.catch((error: Error) => error.message).finally(() => (isOver = true));
  await until("both are called and the input has broken off", () => begun === 2 && reads === 2);
  await Bun.sleep(50);
  expect(isOver).toBe(false);
  answer();
  expect(await over).toBe("the storage is away");
  expect(ended).toBe(2);
});

test("a line that was charged for and not written is answered by that call, and not called again", async () => {
  const { sql } = books;
  const { organizationId, keyId } = await books.addOrganization(1_000_000_000n);
  const id = newId("batch");
  await sql`INSERT INTO batches (id, organization_id, key_id, endpoint, input_file, status, total, created_at, expires_at, due_at)
    VALUES (${id}, ${organizationId}, ${keyId}, ${CHATS}, 'file_1', 'in_progress', 2,
      now(), now() + interval '1 day', now())`;
  const keyring = await testKeyring(sql);
  const answer = keyring.sealUnder(keyring.sealingId, new TextEncoder().encode('{"n":1}'));
  await sql`INSERT INTO idempotency_records
      (key_id, idempotency_key, body_hash, request_id, instance_id, epoch, status, headers, body, created_at)
    VALUES (${id}, '1', 'hash', 'req_before', ${books.instance.id}, 1, 200, '{}',
      ${answer as Buffer}, now() - interval '2 days')`;
  // After a standstill of more than a day, too.
  while (await removeOldIdempotencyRecords(sql));
  let called = 0;
  const call = async (): Promise<CallOutcome> => {
    called++;
    return whole('{"n":2}');
  };
  const input = new TextEncoder().encode(["a", "b"].map((one) => chatLine(one)).join(""));
  const readInput = async () => new Blob([input]).stream();
  const run = await runOf({ call, readInput, batch: { id, organizationId, keyId } });
  await run.run(new Set());
  expect(called).toBe(1);
  const written: string[] = [];
  for await (const sealed of readContents(sql, id, { isFailed: false })) {
    written.push(new TextDecoder().decode(keyring.open(sealed)));
  }
  expect(written.join("")).toMatch(/req_before.*"n":1.*\n.*"n":2/);
  expect(await sql`SELECT 1 FROM idempotency_records`).toHaveLength(0);
});

test("a line whose call still runs elsewhere is not ended by its tries, and has that call's answer", async () => {
  const { sql } = books;
  const { organizationId, keyId } = await books.addOrganization(1_000_000_000n);
  const id = newId("batch");
  await sql`INSERT INTO batches (id, organization_id, key_id, endpoint, input_file, status, total, created_at, expires_at, due_at)
    VALUES (${id}, ${organizationId}, ${keyId}, ${CHATS}, 'file_1', 'in_progress', 1,
      now(), now() + interval '1 day', now())`;
  await sql`INSERT INTO idempotency_records
      (key_id, idempotency_key, body_hash, request_id, instance_id, epoch)
    VALUES (${id}, '1', 'hash', 'req_elsewhere', ${books.instance.id}, 1)`;
  const keyring = await testKeyring(sql);
  const answer = keyring.sealUnder(keyring.sealingId, new TextEncoder().encode('{"n":1}'));
  let tries = 0;
  const call = async (): Promise<CallOutcome> => {
    tries++;
    if (tries === 7) {
      await sql`UPDATE idempotency_records SET status = 200, headers = '{}', body = ${answer as Buffer}
        WHERE key_id = ${id}`;
    }
    if (tries < 8) throw new GatewayError("idempotency_conflict", "It runs.");
    const body = new TextEncoder().encode('{"n":1}');
    return { kind: "replay", status: 200, headers: {}, body };
  };
  const input = new TextEncoder().encode(chatLine("a"));
  const readInput = async () => new Blob([input]).stream();
  const batch = { id, organizationId, keyId };
  const clock = {
    ...systemClock,
    after: (_: number, run: () => void) => systemClock.after(1, run),
  };
  const run = await runOf({ call, readInput, batch, clock });
  await run.run(new Set());
  const written: string[] = [];
  for await (const sealed of readContents(sql, id, { isFailed: false })) {
    written.push(new TextDecoder().decode(keyring.open(sealed)));
  }
  expect(written.join("")).toMatch(/req_elsewhere.*"n":1/);
  for await (const _ of readContents(sql, id, { isFailed: true })) throw new Error("it has failed");
});
