import { afterAll, beforeAll, expect, test } from "bun:test";
import { LineCalls } from "../../src/batches/line-call.ts";
import { LineRun } from "../../src/batches/line-run.ts";
import type { RouteDefinition } from "../../src/http/route.ts";
import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import type { BatchRecord } from "../../src/lib/batch.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { FairSemaphore } from "../../src/lib/fair-share.ts";
import { newId } from "../../src/lib/ids.ts";
import { type Books, openBooks } from "../ledger/books.ts";
import { CHATS, requestLine } from "../support/batches.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

test("where the input breaks off, a run ends behind the calls that it has begun", async () => {
  const { promise: goOn, resolve: answer } = Promise.withResolvers<void>();
  let begun = 0;
  let ended = 0;
  const route = {
    ...{ method: "POST", path: CHATS, access: { kind: "public" } },
    body: {},
    async handle() {
      begun++;
      await goOn;
      ended++;
      return Response.json({});
    },
  } as unknown as RouteDefinition;
  const key = { organizationId: "org_1" } as ApiKeyRecord;
  const calls = new LineCalls({
    routes: [route],
    inFlight: { begin() {}, end() {}, isStopping: false },
    usableKey: async () => key,
    note() {},
  });
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
  const never = new AbortController().signal;
  const batch = { id: newId("batch"), organizationId: "org_1", keyId: "key_1", endpoint: CHATS };
  const run = new LineRun(
    {
      ...{ sql: books.sql, keyring: await testKeyring(books.sql), clock: systemClock, calls },
      ...{ slots: new FairSemaphore(32, 16), isBusy: () => false, readInput },
      guarded: (write) => books.sql.begin((sql) => write(sql)) as never,
      ...{ abandoned: never, ended: never },
    },
    batch as BatchRecord,
  ).run();
  let isOver = false;
  const over = run.catch((error: Error) => error.message).finally(() => (isOver = true));
  await until("both are called and the input has broken off", () => begun === 2 && reads === 2);
  await Bun.sleep(50);
  expect(isOver).toBe(false);
  answer();
  expect(await over).toBe("the storage is away");
  expect(ended).toBe(2);
});
