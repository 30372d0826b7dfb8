import { afterAll, beforeEach, expect, test } from "bun:test";
import { ShortBody } from "../../src/providers/chat-body.ts";
import { typedOf } from "../support/chat-answers.ts";
import { startUpstream } from "../upstream/server.ts";
import {
  batchesAt,
  chatAnswer,
  chatBatch,
  chatRequest,
  failureOf,
  MARK,
  ofResults,
  resultsOf,
} from "./batch-calls.ts";

const MODEL = "claude-haiku-4-5";
const PROMPTS = ["one", "two", "three"];
const never = new AbortController().signal;

const upstream = await startUpstream();
const batches = batchesAt("anthropic", upstream.baseUrl);
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

const { records } = upstream.messageBatches;
const plan = upstream.messageBatches.plan.bind(upstream.messageBatches);

const created = async (prompts = PROMPTS, mark = MARK) =>
  batches.create(await chatBatch(batches, MODEL, prompts, mark), never);

async function ended(batchId: string): Promise<string> {
  for (let looks = 0; looks < 10; looks++) {
    if ((await batches.readState(batchId, never)).hasEnded) return batchId;
  }
  throw new Error("the batch does not end");
}

const search = (isOther: (id: string) => boolean = () => false) => ({
  ...{ mark: MARK, requests: PROMPTS.length, sinceMs: Date.now(), isOther },
});

test("a batch has the requests that live calls send, and its results are decoded as live answers", async () => {
  const id = await ended(await created());
  const [batch] = records.batches;
  expect(batch!.requests[0]).toMatchObject({
    id: `${MARK}-0`,
    body: { model: MODEL, messages: [{ role: "user", content: [{ type: "text", text: "one" }] }] },
  });
  expect(batch!.headers).toMatchObject({ "anthropic-version": "2023-06-01" });
  const { results, failure } = await resultsOf(batches, ofResults(id, 3));
  expect(failure).toBeUndefined();
  expect(results.map((result) => result.id)).toEqual(["2", "1", "0"]);
  const answer = await typedOf(await chatAnswer(batches, results[1]!, MODEL));
  expect(answer.choices[0]!.text).toBe("Echo: two");
  const { usageReported } = upstream.served.find(({ requestBody }) =>
    JSON.stringify(requestBody).includes("two"),
  )!;
  const { input_tokens: input, output_tokens: output } = usageReported as Record<string, number>;
  expect(answer.usage).toMatchObject({
    ...{ promptTokens: input! + 3, cachedPromptTokens: 3, completionTokens: output! },
  });
});

test("an answer by a tool is read with what its request has asked for", async () => {
  const schema = { type: "object", properties: { a: { type: "string" } }, required: ["a"] };
  const body = new ShortBody({
    model: "claude-3-haiku-20240307",
    messages: [{ role: "user", content: "hello" }],
    max_tokens: 100,
    response_format: { type: "json_schema", json_schema: { name: "it", schema } },
  });
  const call = { model: "claude-3-haiku-20240307", requestId: "req_1", signal: never };
  const request = await batches.request((provider) =>
    provider.chat!({ ...call, stream: false, body }),
  );
  const { tool_choice: choice } = JSON.parse(request!.body as string);
  const message = {
    ...{ type: "message", role: "assistant", stop_reason: "tool_use" },
    content: [{ type: "tool_use", id: "t", name: choice.name, input: { a: "b" } }],
    usage: { input_tokens: 1, output_tokens: 1 },
  };
  const answer = { status: 200, body: new TextEncoder().encode(JSON.stringify(message)) };
  const read = await typedOf(
    await batches.answering(answer).chat!({ ...call, stream: false, body }),
  );
  expect(read.choices[0]).toMatchObject({ text: '{"a":"b"}', toolCalls: [] });
});

test("requests with other betas stand in other batches, which name them", async () => {
  const tool = { type: "function", function: { name: "look", parameters: { type: "object" } } };
  const fields = {
    ...{ tools: [tool], reasoning: { max_tokens: 2_000 }, interleaved_thinking: true },
    max_tokens: 4_000,
  };
  const request = await chatRequest(batches, "claude-sonnet-4-20250514", "hello", fields);
  expect(request!.kind).toBe("messages interleaved-thinking-2025-05-14");
  async function* requests() {
    yield { id: "0", body: request!.body };
  }
  await batches.create(
    { mark: MARK, kind: request!.kind, model: MODEL, requests: requests() },
    never,
  );
  expect(records.batches[0]!.headers["anthropic-beta"]).toBe("interleaved-thinking-2025-05-14");
});

test("an error is that of a live call; what expired or was cancelled has no result", async () => {
  upstream.enqueue(MODEL, { do: "complete" }, { do: "error", status: 529 });
  plan({ runningReads: 0, outcome: "expired", answered: 2 });
  const id = await created();
  const { results, failure } = await resultsOf(batches, ofResults(id, 3));
  expect(failure).toBeUndefined();
  expect(results.map((result) => result.id)).toEqual(["1", "0"]);
  const refused = await failureOf(chatAnswer(batches, results[0]!, MODEL));
  expect(refused).toMatchObject({ kind: "unavailable", message: "refused with 529" });
  plan({ outcome: "never", answered: 1 });
  const cancelled = await created();
  await batches.cancel(cancelled, never);
  await ended(cancelled);
  const rest = await resultsOf(batches, ofResults(cancelled, 3));
  expect(rest.results.map((result) => result.id)).toEqual(["0"]);
  await batches.cancel(cancelled, never);
  await batches.cancel("msgbatch_none", never);
});

test("a batch whose creation was not answered is found by its results, once it has ended", async () => {
  plan({ create: "cut", createTimes: 1, outcome: "never" });
  expect((await failureOf(created())).kind).toBe("unavailable");
  const other = await created(["a", "b", "c"], "gwb_other");
  await created(["of another size"], "gwb_third");
  const unsure = await batches.find(search(), never);
  expect(unsure).toEqual({ batchIds: [], isCertain: false });
  records.batches[0]!.reads = 1;
  plan({ runningReads: 1 });
  expect(await batches.find(search(), never)).toEqual({
    ...{ batchIds: ["msgbatch_1"], isCertain: false },
  });
  const known = search((id) => id === other);
  expect(await batches.find(known, never)).toEqual({ batchIds: ["msgbatch_1"], isCertain: true });
  const elsewhere = { ...known, mark: "gwb_none" };
  expect(await batches.find(elsewhere, never)).toEqual({ batchIds: [], isCertain: true });
  const later = { ...known, sinceMs: Date.now() + 7_200_000 };
  expect(await batches.find(later, never)).toEqual({ batchIds: [], isCertain: true });
});

test("a batch that cannot be made says why; its requests' own error is thrown as it is", async () => {
  plan({ create: "busy" });
  expect(await failureOf(created())).toMatchObject({ kind: "rate_limited", status: 429 });
  plan({ create: "refuse" });
  expect((await failureOf(created())).kind).toBe("rejected");
  plan({ create: "garbage" });
  expect((await failureOf(created())).kind).toBe("unavailable");
  const batch = await chatBatch(batches, MODEL, PROMPTS);
  async function* broken() {
    yield* batch.requests;
    throw new RangeError("the file is gone");
  }
  const creating = batches.create({ ...batch, requests: broken() }, never);
  await expect(creating).rejects.toThrow(new RangeError("the file is gone"));
});

test("a batch is removed with its results, when it has ended", async () => {
  plan({ outcome: "never" });
  const id = await created();
  await batches.remove(id, never);
  expect(records.batches[0]!.isDeleted).toBe(false);
  plan({ runningReads: 0 });
  await batches.remove(id, never);
  expect(records.batches[0]!.isDeleted).toBe(true);
  expect((await failureOf(batches.readState(id, never))).status).toBe(404);
  await batches.remove(id, never);
});

test("results that are not as they should be are read as far as they make sense", async () => {
  const faults = {
    unknown: [3, undefined],
    twice: [3, undefined],
    garbage: [3, "not JSON"],
  } as const;
  for (const [results, [count, message]] of Object.entries(faults)) {
    plan({ results: results as keyof typeof faults });
    const read = await resultsOf(batches, ofResults(await ended(await created()), 3));
    expect(read.results).toHaveLength(count);
    if (message === undefined) expect(read.failure).toBeUndefined();
    else expect(read.failure?.message).toContain(message);
  }
  plan({ results: "half" });
  const half = await resultsOf(batches, ofResults(await ended(await created()), 3));
  expect(half.failure?.message).toContain("fewer results than the batch counts");
});
