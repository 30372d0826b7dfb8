import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { FairWorkThread } from "../../src/lib/work-thread.ts";
import { pricesAtShare } from "../../src/providers/batches.ts";
import { passedOf } from "../support/chat-answers.ts";
import { until } from "../support/until.ts";
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

/** An answer that was sent has arrived by then. */
const ANSWER_MS = 200;
const MODEL = "gpt-4o-mini";
const PROMPTS = ["one", "two", "three", "four"];
const READ_OPTIONS = { requestId: "req_1", hidesReasoning: false, nowSeconds: 1_000 };
const never = new AbortController().signal;

const upstream = await startUpstream();
const batches = batchesAt("openai", upstream.baseUrl);
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

const created = async (prompts = PROMPTS) =>
  batches.create(await chatBatch(batches, MODEL, prompts), never);

async function ended(batchId: string, of = batches): Promise<void> {
  for (let looks = 0; looks < 10; looks++)
    if ((await of.readState(batchId, never)).hasEnded) return;
  throw new Error("the batch does not end");
}

async function endedBatch(prompts = PROMPTS): Promise<string> {
  const id = await created(prompts);
  await ended(id);
  return id;
}

const search = (isOther = () => false) => ({
  ...{ mark: MARK, requests: PROMPTS.length, sinceMs: Date.now(), isOther },
});

describe("a batch", () => {
  test("has the requests that live calls send, and its results are decoded as live answers", async () => {
    upstream.behave("gpt-4o", { do: "complete", usage: usageWithCache() });
    const live = upstream.servedOf("gpt-4o");
    const request = await chatRequest(batches, "gpt-4o", "one", { temperature: 0.5 });
    expect(request).toMatchObject({ kind: "/v1/chat/completions", count: 1 });
    expect(live).toEqual([]);

    const id = await batches.create(await chatBatch(batches, "gpt-4o", PROMPTS), never);
    await ended(id);
    const { results, failure } = await resultsOf(batches, ofResults(id, PROMPTS.length));
    expect(failure).toBeUndefined();
    expect(results.map((result) => result.id).toSorted()).toEqual(["0", "1", "2", "3"]);
    const answer = await chatAnswer(batches, results.find((one) => one.id === "2")!, "gpt-4o");
    const { body, usage } = await passedOf(answer, READ_OPTIONS);
    expect(body).toMatchObject({ choices: [{ message: { content: "Echo: three" } }] });
    expect(usage).toMatchObject({ promptTokens: 20, cachedPromptTokens: 8, completionTokens: 7 });
    const served = upstream.servedOf("gpt-4o");
    expect(served.map(({ batchId }) => batchId)).toEqual([id, id, id, id]);
  });

  test("carries its mark, and files that are removed and that expire", async () => {
    const id = await endedBatch();
    const { batches: made, files } = upstream.batches.records;
    expect(made[0]).toMatchObject({
      request: {
        completion_window: "24h",
        endpoint: "/v1/chat/completions",
        metadata: { gateway_batch: MARK },
        output_expires_after: { anchor: "created_at" },
      },
      headers: { "idempotency-key": MARK, authorization: expect.stringContaining("Bearer sk-") },
    });
    expect(files.map(({ filename }) => filename)).toEqual([`${MARK}.jsonl`, `${id}_output.jsonl`]);
    expect(files[0]!.form).toMatchObject({ purpose: "batch", "expires_after[seconds]": "604800" });
    await batches.remove(id, never);
    expect(files.every(({ isDeleted }) => isDeleted)).toBe(true);
    await batches.remove(id, never);
    await batches.remove("batch_none", never);
  });

  test("holds embeddings, of which each input counts as a request", async () => {
    const call = { model: "text-embedding-3-small", requestId: "req_1", signal: never };
    const embed = { ...call, inputs: ["one", "two", "three"], fields: {} };
    const request = await batches.request((provider) => provider.embed!(embed));
    expect(request).toMatchObject({ kind: "/v1/embeddings", count: 3 });
    async function* requests() {
      yield { id: "0", body: request!.body };
    }
    const batch = { mark: MARK, kind: request!.kind, model: call.model, requests: requests() };
    const id = await batches.create(batch, never);
    await ended(id);
    const { results } = await resultsOf(batches, ofResults(id, 1));
    if (!("answer" in results[0]!)) throw new Error("it was not answered");
    const embeddings = await batches.answering(results[0].answer).embed!(embed);
    expect(embeddings.vectors).toHaveLength(3);
    expect(embeddings.usage?.promptTokens).toBeGreaterThan(0);
  });

  test("takes no request that the provider answers live alone", async () => {
    const call = { model: "tts-1", requestId: "req_1", signal: never };
    const request = await batches.request((provider) =>
      provider.moderate!({ ...call, input: ["one"] }),
    );
    expect(request).toBeUndefined();
    expect(upstream.served).toEqual([]);
  });

  test("is read in all its states until it has ended", async () => {
    upstream.batches.plan({ validatingReads: 1, runningReads: 2, finalizingReads: 1 });
    const id = await created();
    const seen: boolean[] = [];
    for (let looks = 0; looks < 5; looks++)
      seen.push((await batches.readState(id, never)).hasEnded);
    expect(seen).toEqual([false, false, false, false, true]);
  });

  test("that fails as a whole says why; one that has no room may be sent again", async () => {
    upstream.batches.plan({ runningReads: 0, outcome: "failed" });
    const id = await created();
    const state = await batches.readState(id, never);
    expect(state).toMatchObject({ hasEnded: true, failure: { kind: "rejected" } });
    const message = "Enqueued token limit reached, the key is sk-batch-0123456789";
    upstream.batches.plan({
      ...{ runningReads: 0, outcome: "failed" },
      failure: { code: "token_limit_exceeded", message },
    });
    const { failure } = await batches.readState(id, never);
    expect(failure?.kind).toBe("rate_limited");
    expect(failure?.message).toContain("[redacted]");
  });

  test("that expires or is cancelled has the results of what was run, and no others", async () => {
    upstream.batches.plan({ runningReads: 0, outcome: "expired", answered: 3 });
    const expired = await endedBatch();
    const first = await resultsOf(batches, ofResults(expired, 4));
    expect(first.results.map(({ id }) => id).toSorted()).toEqual(["0", "1", "2"]);
    expect(first.failure).toBeUndefined();
    upstream.batches.plan({ outcome: "never", answered: 1 });
    const cancelled = await created();
    await batches.cancel(cancelled, never);
    await ended(cancelled);
    const second = await resultsOf(batches, ofResults(cancelled, 4));
    expect(second.results.map(({ id }) => id)).toEqual(["0"]);
    await batches.cancel(cancelled, never);
    await batches.cancel("batch_none", never);
  });

  test("gives a request that was refused the failure of a live call", async () => {
    upstream.enqueue(MODEL, { do: "complete" }, { do: "rate-limited" });
    const id = await endedBatch();
    const { results } = await resultsOf(batches, ofResults(id, 4));
    expect(results).toHaveLength(4);
    const refused = results.find((one) => one.id === "1")!;
    const failure = await failureOf(chatAnswer(batches, refused, MODEL));
    expect(failure).toMatchObject({ kind: "rate_limited", status: 429 });
  });
});

describe("creating", () => {
  test("is found by its mark where its answer was lost, and by no other", async () => {
    upstream.batches.plan({ create: "cut", createTimes: 1 });
    expect((await failureOf(created())).kind).toBe("unavailable");
    const others = Array.from({ length: 45 }, (_, at) =>
      chatBatch(batches, MODEL, ["x"], `o${at}`),
    );
    for (const other of others) await batches.create(await other, never);
    const found = await batches.find(search(), never);
    expect(found).toEqual({ batchIds: ["batch_1"], isCertain: true });
    expect(await batches.find({ ...search(), mark: "gwb_none" }, never)).toEqual({
      batchIds: [],
      isCertain: true,
    });
  });

  test("leaves no file where it was refused, or where its creator died before", async () => {
    upstream.batches.plan({ create: "refuse" });
    expect((await failureOf(created())).kind).toBe("rejected");
    const { files } = upstream.batches.records;
    expect(files.map(({ isDeleted }) => isDeleted)).toEqual([true]);
    upstream.batches.plan({ create: "busy" });
    expect((await failureOf(created())).kind).toBe("rate_limited");
    expect(files.map(({ isDeleted }) => isDeleted)).toEqual([true, true]);
    upstream.batches.plan({ upload: "cut" });
    expect((await failureOf(created())).kind).toBe("unavailable");
    expect(files.map(({ isDeleted }) => isDeleted)).toEqual([true, true, false]);
    expect((await batches.find(search(), never)).batchIds).toEqual([]);
    expect(files.every(({ isDeleted }) => isDeleted)).toBe(true);
  });

  test("throws what its requests throw, and creates nothing", async () => {
    const batch = await chatBatch(batches, MODEL, PROMPTS);
    async function* broken() {
      yield* batch.requests;
      throw new RangeError("the file is gone");
    }
    const creating = batches.create({ ...batch, requests: broken() }, never);
    await expect(creating).rejects.toThrow(new RangeError("the file is gone"));
    expect(upstream.batches.records).toEqual({ files: [], batches: [] });
  });

  test("makes no more requests than the provider takes", async () => {
    let received = 0;
    const server = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        data(socket, bytes) {
          received += bytes.byteLength;
          socket.pause();
        },
      },
    });
    const stopped = batchesAt("openai", `http://127.0.0.1:${server.port}/v1`);
    const body = JSON.stringify({ text: "x".repeat(262_144) });
    let made = 0;
    async function* requests() {
      for (; made < 1_000; made++) yield { id: String(made), body };
    }
    const abort = new AbortController();
    const batch = { mark: MARK, kind: "/v1/chat/completions", model: MODEL, requests: requests() };
    const creating = failureOf(stopped.create(batch, abort.signal));
    let before = -1;
    await until("the upload to stand still", async () => {
      const isStill = received > 0 && made === before;
      before = made;
      await Bun.sleep(50);
      return isStill;
    });
    // A tenth of them is more than the buffers of two sockets take.
    expect(made).toBeLessThan(100);
    abort.abort();
    expect((await creating).kind).toBe("aborted");
    server.stop(true);
  });

  test("ends with its signal", async () => {
    upstream.batches.plan({ stall: "create" });
    const abort = new AbortController();
    const creating = failureOf(
      batches.create(await chatBatch(batches, MODEL, PROMPTS), abort.signal),
    );
    await until("the batch", () => upstream.batches.records.batches.length === 1);
    abort.abort();
    expect((await creating).kind).toBe("aborted");
    upstream.batches.plan({});
  });
});

describe("results of a provider that does not keep to the interface", () => {
  test("of requests that the batch does not have, or twice, are passed over", async () => {
    for (const results of ["unknown", "twice"] as const) {
      upstream.reset();
      upstream.batches.plan({ results });
      const id = await endedBatch();
      const read = await resultsOf(batches, ofResults(id, 4));
      expect(read.results.map((one) => one.id).toSorted()).toEqual(["0", "1", "2", "3"]);
      expect(read.failure).toBeUndefined();
    }
  });

  test("that make no sense fail the reading when all others are read", async () => {
    upstream.batches.plan({ results: "garbage" });
    const id = await endedBatch();
    const read = await resultsOf(batches, ofResults(id, 4));
    expect(read.results).toHaveLength(4);
    expect(read.failure?.message).toBe("the provider answered with a body that is not JSON");
  });

  test("that are cut, or fewer than it counts, fail the reading behind those that came", async () => {
    upstream.batches.plan({ results: "cut" });
    const cut = await resultsOf(batches, ofResults(await endedBatch(), 4));
    expect(cut.results.length).toBeLessThan(4);
    expect(cut.failure?.kind).toBe("unavailable");
    upstream.batches.plan({ results: "half" });
    const half = await resultsOf(batches, ofResults(await endedBatch(), 4));
    expect(half.results).toHaveLength(2);
    expect(half.failure?.message).toBe("the provider answered with fewer results than it counts");
  });

  test("without an end are bounded, in a line and in lines", async () => {
    const endless = {
      "endless-line": "the provider answered with a line of results without an end",
      "endless-lines": "the provider answered with more results than the batch has requests",
      "endless-blanks": "the provider answered with more results than the batch has requests",
    } as const;
    for (const [results, message] of Object.entries(endless)) {
      upstream.batches.plan({ results: results as keyof typeof endless });
      const read = await resultsOf(batches, ofResults(await endedBatch(["one"]), 1));
      expect(read).toMatchObject({ results: [], failure: { kind: "unavailable", message } });
    }
  });

  test("that come byte by byte, or not at all, are not waited for without limit", async () => {
    const clock = new VirtualClock(Date.now());
    const slow = batchesAt("openai", upstream.baseUrl, { clock });
    for (const results of ["trickle", "silent"] as const) {
      upstream.batches.plan({ results });
      const id = await slow.create(await chatBatch(slow, MODEL, ["one"]), never);
      await ended(id, slow);
      const reading = resultsOf(slow, ofResults(id, 1));
      await until("it is answered", () => upstream.batches.records.batches.at(-1)!.resultsRead > 0);
      await Bun.sleep(ANSWER_MS);
      let isOver = false;
      reading.then(() => {
        isOver = true;
      });
      while (!isOver) {
        await Bun.sleep(5);
        clock.advance(30_000);
      }
      expect((await reading).failure).toMatchObject({
        kind: "timeout",
        message: "the provider took too long to answer",
      });
    }
  });

  test("are not read of a batch that has not ended, or is another", async () => {
    upstream.batches.plan({ outcome: "never" });
    const id = await created();
    expect((await resultsOf(batches, ofResults(id, 4))).failure?.message).toContain("not ended");
    upstream.batches.plan({ read: "lost" });
    expect((await failureOf(batches.readState(id, never))).status).toBe(404);
    upstream.batches.plan({ read: "garbage" });
    expect((await failureOf(batches.readState(id, never))).kind).toBe("unavailable");
  });
});

test("a long result is read in a work thread, as it came", async () => {
  const workThread = new FairWorkThread({
    script: new URL("../../src/main/compose/long-work-thread.ts", import.meta.url),
    ...{ deadlineMs: 20_000, maxWaiting: 100, maxWaitingOfOne: 100, maxWaitMs: 20_000 },
    onLost: () => {},
  });
  try {
    const content = "Grüße 👋 ".repeat(100_000);
    upstream.behave(MODEL, { do: "complete", content });
    const threaded = batchesAt("openai", upstream.baseUrl, { workThread });
    const id = await endedBatch(["one"]);
    const { results, failure } = await resultsOf(threaded, ofResults(id, 1));
    expect(failure).toBeUndefined();
    const [result] = results;
    if (result === undefined || !("answer" in result)) throw new Error("it was not answered");
    const body = JSON.parse(new TextDecoder().decode(result.answer.body));
    expect(body.choices[0].message.content).toBe(content);
    const answer = await chatAnswer(threaded, result, MODEL);
    expect((await passedOf(answer, READ_OPTIONS)).usage?.completionTokens).toBeGreaterThan(100_000);
  } finally {
    await workThread.close();
  }
});

test("an organization's own server is sent no batches", () => {
  const byokKey = { atOperatorsAddress: false };
  expect(() => batchesAt("openai", upstream.baseUrl, { byokKey })).toThrow("no batches");
  expect(
    batchesAt("openai", upstream.baseUrl, { byokKey: { atOperatorsAddress: true } }),
  ).toBeDefined();
});

test("a share of prices is rounded up to a femto-USD", () => {
  const prices = { inputTokenFemto: 3n, longPrompt: { beyondTokens: 7, outputTokenFemto: 10n } };
  expect(pricesAtShare(prices, 5_000)).toEqual({
    inputTokenFemto: 2n,
    longPrompt: { beyondTokens: 7, outputTokenFemto: 5n },
  });
});

function usageWithCache() {
  return {
    prompt_tokens: 20,
    completion_tokens: 7,
    total_tokens: 27,
    prompt_tokens_details: { cached_tokens: 8 },
  };
}
