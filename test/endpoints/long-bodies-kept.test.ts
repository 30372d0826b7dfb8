import { afterAll, expect, test } from "bun:test";
import { DefinitionCache } from "../../src/inference/definitions/definition-cache.ts";
import { readLongChat } from "../../src/inference/endpoints/chat-completions/long-chat.ts";
import { providerBody } from "../../src/inference/endpoints/chat-completions/provider-body.ts";
import { LongBodies, MAX_STORED_BYTES_OF_ONE } from "../../src/inference/endpoints/long-bodies.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { type SharedBytes, SharedBytesWriter } from "../../src/lib/shared-bytes.ts";
import { FairWorkThread } from "../../src/lib/work-thread.ts";
import { openAiBody } from "../../src/providers/openai/chat/shape-body.ts";

const never = new AbortController().signal;
const threads: FairWorkThread[] = [];
afterAll(() => {
  for (const thread of threads) thread.close();
});

function startThread(): FairWorkThread {
  const thread = new FairWorkThread({
    script: new URL("../../src/main/compose/long-work-thread.ts", import.meta.url),
    deadlineMs: 20_000,
    maxWaiting: 100,
    maxWaitingOfOne: 100,
    maxWaitMs: 20_000,
    onLost: () => {},
  });
  threads.push(thread);
  return thread;
}

/** Bytes that count as so many, to be long without taking the memory. */
function bytesOf(text: string, byteLength: number): SharedBytes {
  const writer = new SharedBytesWriter();
  writer.push(Buffer.from(text));
  return { ...writer.end(), byteLength };
}

const bodyOf = (content: string) =>
  JSON.stringify({ model: "m", messages: [{ role: "user", content }] });
const candidate = { upstreamModel: "upstream", model: { id: "m" } } as never;

const NO_DEFINITIONS = new DefinitionCache(
  async () => ({ definitions: [], defaults: new Map() }) as never,
);
type Read = Awaited<ReturnType<typeof readLongChat>>;

async function rendered({ value }: Read): Promise<unknown> {
  const model = "upstream";
  const options = { type: "openai-compatible", plainDeltas: false, model, modelId: model };
  const rendered = providerBody(value, candidate, 7, undefined).render(openAiBody, options, never);
  const { body } = await rendered;
  return JSON.parse(Buffer.from(body as Uint8Array).toString());
}

const wholeOf = (content: string) => ({
  model: "upstream",
  messages: [{ role: "user", content }],
  max_tokens: 7,
});

const codeOf = (read: Promise<unknown>) =>
  read.then(
    () => "read",
    (error: unknown) => (error instanceof GatewayError ? error.code : String(error)),
  );

test("a body that a thread has read is rendered by the next thread where that one ended", async () => {
  let current = startThread();
  const thread = { call: (...call: Parameters<FairWorkThread["call"]>) => current.call(...call) };
  const bodies = new LongBodies(thread as FairWorkThread, NO_DEFINITIONS);
  const read = await readLongChat(bodies, bytesOf(bodyOf("é"), 1), "org", never);
  current.close();
  current = startThread();
  expect(await rendered(read)).toEqual(wholeOf("é"));
  expect(await rendered(read)).toEqual(wholeOf("é"));
  read.release();
});

test("more bodies than a thread keeps parsed are rendered from their bytes", async () => {
  const bodies = new LongBodies(startThread(), NO_DEFINITIONS);
  const reads: Read[] = [];
  for (const n of [0, 1, 2, 3, 4]) {
    reads.push(await readLongChat(bodies, bytesOf(bodyOf(`body ${n}`), 30_000_000), "org", never));
  }
  for (const [n, read] of reads.entries()) {
    expect(await rendered(read)).toEqual(wholeOf(`body ${n}`));
    read.release();
  }
});

test("bodies that are kept take so many bytes of one organization, until they are released", async () => {
  const bodies = new LongBodies(startThread(), NO_DEFINITIONS);
  const read = (owner: string, bytes: number, text = bodyOf("a")) =>
    readLongChat(bodies, bytesOf(text, bytes), owner, never);
  const kept = await read("a", MAX_STORED_BYTES_OF_ONE);
  expect(await codeOf(read("a", 1))).toBe("overloaded");
  const other = await read("b", 0.8 * MAX_STORED_BYTES_OF_ONE);
  // A third one still finds a little room, and no more than that.
  const little = await read("c", 1);
  little.release();
  expect(await codeOf(read("c", 0.3 * MAX_STORED_BYTES_OF_ONE))).toBe("overloaded");
  kept.release();
  kept.release();
  expect(await codeOf(read("a", 1, "no JSON"))).toBe("invalid_json");
  // The faulty one has given up its bytes.
  const whole = await read("a", MAX_STORED_BYTES_OF_ONE);
  whole.release();
  other.release();
  await expect(rendered(whole)).rejects.toThrow("released");
});
