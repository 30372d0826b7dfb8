import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { AnswerReader } from "../../src/providers/gemini/answer-reader.ts";
import { GeminiDecoder } from "../../src/providers/gemini/event-decoder.ts";
import { wholeResponse } from "../../src/providers/gemini/whole-answer.ts";
import { type ChatEvent, ProviderFailure } from "../../src/providers/interface.ts";

/** What is made of single responses of Google's. */

const CONTEXT = { nowMs: 0, apiKey: undefined };
const requestId = "req_0123456789abcdef";
const reader = () => new AnswerReader(requestId, CONTEXT);
const completionOf = (response: unknown) =>
  wholeResponse.read(JSON.stringify(response), { requestId, failureContext: CONTEXT });
const withParts = (parts: readonly unknown[], more: object = {}) => ({
  candidates: [{ content: { parts }, finishReason: "STOP", ...more }],
});

test("sources become annotations, counted as JavaScript counts", () => {
  const groundingMetadata = {
    groundingChunks: [
      { web: { uri: "https://a.test", title: "A" } },
      { maps: {} },
      { web: { uri: "https://b.test" } },
    ],
    groundingSupports: [
      { segment: { startIndex: 3, endIndex: 8 }, groundingChunkIndices: [0, 1, 2, 9] },
    ],
  };
  const { choices } = completionOf(withParts([{ text: "ä b\u{1f44b}c" }], { groundingMetadata }));
  const citation = (url: string, title: string) => ({
    type: "url_citation",
    url_citation: { url, title, start_index: 2, end_index: 5 },
  });
  expect(choices[0]).toMatchObject({
    text: "ä b\u{1f44b}c",
    annotations: [citation("https://a.test", "A"), citation("https://b.test", "")],
  });
  const bare = { groundingChunks: groundingMetadata.groundingChunks };
  const whole = completionOf(withParts([{ text: "abc" }], { groundingMetadata: bare }));
  expect(whole.choices[0]!.annotations).toHaveLength(2);
});

test("log probabilities come in OpenAI's form", () => {
  const logprobsResult = {
    chosenCandidates: [{ token: "ä", logProbability: -0.5 }],
    topCandidates: [
      {
        candidates: [
          { token: "ä", logProbability: -0.5 },
          { token: "b", logProbability: -2 },
        ],
      },
    ],
  };
  const { choices } = completionOf(withParts([{ text: "ä" }], { logprobsResult }));
  const token = (text: string, logprob: number) => ({
    token: text,
    logprob,
    bytes: [...Buffer.from(text)],
  });
  expect(choices[0]!.logprobs).toEqual({
    content: [{ ...token("ä", -0.5), top_logprobs: [token("ä", -0.5), token("b", -2)] }],
    refusal: null,
  });
});

test("pieces of a thought are one detail until its signature", () => {
  const thought = (text: string, thoughtSignature?: string) => ({
    text,
    thought: true,
    thoughtSignature,
  });
  const parts = [
    thought("a"),
    thought("b", "s"),
    thought("c"),
    { text: "d", thoughtSignature: "t" },
  ];
  const { choices } = completionOf(withParts(parts));
  const format = "google-gemini-v1";
  expect(choices[0]).toMatchObject({ reasoning: "abc", text: "d" });
  expect(choices[0]!.reasoningDetails).toEqual([
    { type: "reasoning.text", text: "ab", signature: "s", format, index: 0 },
    { type: "reasoning.text", text: "c", format, index: 1 },
    { type: "reasoning.encrypted", data: "t", format, index: 2 },
  ]);
});

test("no JSON makes the reader throw, and what it makes of any has the form of events", () => {
  const any = fc.jsonValue();
  const odd = fc.oneof(any, fc.constantFrom("STOP", "SAFETY", "text", 0, 1, true));
  const part = fc.record(
    {
      text: odd,
      thought: odd,
      thoughtSignature: odd,
      functionCall: fc.record({ name: odd, args: any, id: odd }),
    },
    { requiredKeys: [] },
  );
  const candidate = fc.record(
    {
      index: odd,
      content: fc.oneof(any, fc.record({ parts: fc.array(fc.oneof(any, part)) })),
      finishReason: odd,
      finishMessage: any,
      groundingMetadata: fc.record({ groundingChunks: any, groundingSupports: any }),
      logprobsResult: fc.record({ chosenCandidates: any, topCandidates: any }),
    },
    { requiredKeys: [] },
  );
  const response = fc.oneof(
    any,
    fc.record(
      {
        candidates: fc.oneof(any, fc.array(fc.oneof(any, candidate))),
        promptFeedback: fc.record({ blockReason: odd, blockReasonMessage: any }),
        usageMetadata: fc.record({
          promptTokenCount: odd,
          candidatesTokenCount: odd,
          thoughtsTokenCount: odd,
          promptTokensDetails: any,
        }),
        error: any,
      },
      { requiredKeys: [] },
    ),
  );
  fc.assert(
    fc.property(fc.array(response, { maxLength: 4 }), (responses) => {
      const stream = reader();
      for (const one of responses) for (const event of stream.read(one)) expectEvent(event);
      for (const one of responses) {
        try {
          expect(completionOf(one).choices.length).toBePositive();
        } catch (error) {
          expect(error).toBeInstanceOf(ProviderFailure);
        }
      }
    }),
    { numRuns: 1_000 },
  );
});

function expectEvent(event: ChatEvent): void {
  if (event.type === "error") expect(event.failure).toBeInstanceOf(ProviderFailure);
  else if (event.type === "usage") {
    for (const count of Object.values(event.usage)) {
      if (typeof count !== "boolean") expect(Number.isSafeInteger(count) && count >= 0).toBeTrue();
    }
  } else {
    expect(event.choice).toBeGreaterThanOrEqual(0);
    if ("text" in event) expect(event.text).toBeString();
    if (event.type === "tool_call") expect(JSON.parse(event.arguments!)).toBeObject();
  }
}

describe("arguments of a call that come in pieces", () => {
  const call = (functionCall: object, more: object = {}) => ({
    candidates: [{ content: { parts: [{ functionCall, ...more }] } }],
  });
  const piece = (jsonPath: string, value: object) => ({ jsonPath, ...value });
  const more = (...partialArgs: object[]) => call({ partialArgs, willContinue: true });
  const stop = { candidates: [{ finishReason: "STOP" }] };
  const callsOf = (responses: readonly object[]) => {
    const one = reader();
    return responses
      .flatMap((response) => one.read(response))
      .filter((event) => event.type === "tool_call");
  };

  test("are put together by their paths, and come as one call", () => {
    const calls = callsOf([
      call({ name: "send", id: "c1", willContinue: true }, { thoughtSignature: "sig" }),
      more(piece("$.to[0].name", { stringValue: "Ad", willContinue: true })),
      more(
        piece("$.to[0].name", { stringValue: "a" }),
        piece("$.to[0].age", { numberValue: 36 }),
        piece("$.to[1]", { nullValue: "NULL_VALUE" }),
        piece("$['a key'].it", { boolValue: false }),
        piece("$.__proto__.polluted", { stringValue: "no" }),
      ),
      call({}),
      call({ name: "send", args: { to: [] } }),
      stop,
    ]);
    expect(calls.map(({ index, id, name }) => ({ index, id, name }))).toEqual([
      { index: 0, id: "c1", name: "send" },
      { index: 1, id: expect.stringMatching(/^call_/), name: "send" },
    ]);
    expect(calls.map((one) => one.arguments)).toEqual([
      '{"to":[{"name":"Ada","age":36},null],"a key":{"it":false},"__proto__":{"polluted":"no"}}',
      '{"to":[]}',
    ]);
    expect(calls[0]!.extraContent).toBeDefined();
    expect(({} as { polluted?: string }).polluted).toBeUndefined();
  });

  test("end with the next call, or with the answer", () => {
    const calls = callsOf([
      call({ name: "a", willContinue: true }),
      more(piece("$.x", { numberValue: 1 })),
      call({ name: "b", willContinue: true }),
      more(piece("$.y", { stringValue: "" })),
      stop,
    ]);
    expect(calls.map((one) => [one.name, one.arguments])).toEqual([
      ["a", '{"x":1}'],
      ["b", '{"y":""}'],
    ]);
  });

  test.each(["x", "$", "$.to[5]", "$..x", `$${".a".repeat(65)}`])(
    "a piece at the path %p breaks the answer",
    (path) => {
      const args = [piece("$.to[0]", { numberValue: 1 }), piece(path, { numberValue: 1 })];
      expect(() => callsOf([call({ name: "a", willContinue: true }), more(...args)])).toThrow(
        ProviderFailure,
      );
    },
  );
});

describe("a stream", () => {
  const frame = (response: object) => Buffer.from(`data: ${JSON.stringify(response)}\n\n`);
  const usageMetadata = { promptTokenCount: 3, candidatesTokenCount: 5, totalTokenCount: 8 };

  test("that ends with an error still has the usage which the last response reports", () => {
    const decoder = new GeminiDecoder(reader());
    const events: ChatEvent[] = [];
    decoder.push(frame(withParts([{ text: "Hi" }], { finishReason: undefined })), events);
    const last = { candidates: [{ finishReason: "MALFORMED_FUNCTION_CALL" }], usageMetadata };
    expect(() => decoder.push(frame(last), events)).toThrow(ProviderFailure);
    expect(events).toMatchObject([
      { type: "text" },
      { type: "usage", usage: { promptTokens: 3, completionTokens: 5 } },
    ]);
  });

  test("that is complete may be followed by the beginning of another event", () => {
    const decoder = new GeminiDecoder(reader());
    const events: ChatEvent[] = [];
    decoder.push(frame({ ...withParts([{ text: "Hi" }]), usageMetadata }), events);
    decoder.push(Buffer.from('data: {"candid'), events);
    decoder.end(events);
    expect(events.map(({ type }) => type)).toEqual(["text", "finish", "usage"]);
    const broken = new GeminiDecoder(reader());
    broken.push(Buffer.from('data: {"candid'), []);
    expect(() => broken.end([])).toThrow(ProviderFailure);
  });
});
