import { afterAll, beforeEach, expect, test } from "bun:test";
import { passedOf } from "../support/chat-answers.ts";
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

const MODEL = "mistral-small-latest";
const PROMPTS = ["one", "two", "three"];
const never = new AbortController().signal;

const upstream = await startUpstream();
const batches = batchesAt("mistral", upstream.baseUrl);
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

const created = async (prompts = PROMPTS, mark = MARK) =>
  batches.create(await chatBatch(batches, MODEL, prompts, mark), never);

async function endedBatch(): Promise<string> {
  const id = await created();
  for (let looks = 0; looks < 10; looks++) {
    if ((await batches.readState(id, never)).hasEnded) return id;
  }
  throw new Error("the batch does not end");
}

const search = { mark: MARK, requests: 3, sinceMs: Date.now(), isOther: () => false };

test("a job has the requests that live calls send, and its results are decoded as live answers", async () => {
  expect(await chatRequest(batches, MODEL, "one")).toMatchObject({ kind: "/v1/chat/completions" });
  const id = await endedBatch();
  const { batches: made, files } = upstream.batches.records;
  expect(made[0]!.request).toMatchObject({ model: MODEL, metadata: { gateway_batch: MARK } });
  expect(JSON.parse(files[0]!.content.split("\n")[0]!)).toEqual({
    custom_id: "0",
    body: expect.objectContaining({ model: MODEL, messages: [{ role: "user", content: "one" }] }),
  });
  const { results, failure } = await resultsOf(batches, ofResults(id, 3));
  expect(failure).toBeUndefined();
  const answer = await chatAnswer(batches, results[1]!, MODEL);
  const read = { requestId: "req_1", hidesReasoning: false, nowSeconds: 1_000 };
  const { body, usage } = await passedOf(answer, read);
  expect(body).toMatchObject({ choices: [{ message: { content: "Echo: two" } }] });
  expect(usage?.promptTokens).toBeGreaterThan(0);
  await batches.remove(id, never);
  expect(files.every(({ isDeleted }) => isDeleted)).toBe(true);
});

test("a job whose creation was not answered is found by its mark, behind any number of others", async () => {
  upstream.batches.plan({ create: "cut", createTimes: 1 });
  for (let others = 0; others < 60; others++) {
    await created(["x"], `gwb_before_${others}`).catch(() => undefined);
  }
  upstream.batches.plan({ create: "cut", createTimes: 1 });
  expect((await failureOf(created())).kind).toBe("unavailable");
  expect(await batches.find(search, never)).toEqual({ batchIds: ["batch_61"], isCertain: true });
  const later = { ...search, sinceMs: Date.now() + 7_200_000 };
  expect((await batches.find(later, never)).batchIds).toEqual([]);
});

test("a job that runs out of time or is cancelled has the results of what was run", async () => {
  upstream.batches.plan({ runningReads: 0, outcome: "expired", answered: 2 });
  const expired = await resultsOf(batches, ofResults(await endedBatch(), 3));
  expect(expired.results.map(({ id }) => id)).toEqual(["0", "1"]);
  upstream.batches.plan({ outcome: "never", answered: 1 });
  const id = await created();
  await batches.cancel(id, never);
  expect((await batches.readState(id, never)).hasEnded).toBe(false);
  expect((await batches.readState(id, never)).hasEnded).toBe(true);
  const cancelled = await resultsOf(batches, ofResults(id, 3));
  expect(cancelled.results.map((result) => result.id)).toEqual(["0"]);
  await batches.cancel(id, never);
});

test("a job that fails as a whole says why, and one that is refused leaves no file", async () => {
  const failure = { code: "any", message: "the model is gone" };
  upstream.batches.plan({ runningReads: 0, outcome: "failed", failure });
  const state = await batches.readState(await created(), never);
  expect(state).toMatchObject({
    hasEnded: true,
    failure: { kind: "rejected", ...{ message: failure.message } },
  });
  upstream.batches.plan({ create: "refuse" });
  expect((await failureOf(created())).kind).toBe("rejected");
  expect(upstream.batches.records.files.at(-1)!.isDeleted).toBe(true);
});

test("fewer results than the job counts are no answer", async () => {
  upstream.batches.plan({ results: "half" });
  const half = await resultsOf(batches, ofResults(await endedBatch(), 3));
  expect(half.results).toHaveLength(2);
  expect(half.failure?.message).toContain("fewer results than it counts");
});
