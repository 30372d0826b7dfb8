import { expect, test } from "bun:test";
import fc from "fast-check";
import { CohereDecoder } from "../../src/providers/cohere/event-decoder.ts";
import { reportedUsage } from "../../src/providers/cohere/reported-usage.ts";
import { wholeAnswer } from "../../src/providers/cohere/whole-answer.ts";
import { type ChatEvent, ProviderFailure } from "../../src/providers/interface.ts";

/** What is made of single answers and events of Cohere's. */

const CONTEXT = { nowMs: 0, apiKey: undefined };
const completionOf = (answer: unknown) =>
  wholeAnswer.read(JSON.stringify(answer), { failureContext: CONTEXT });

function eventsOf(events: readonly unknown[]): ChatEvent[] {
  const decoder = new CohereDecoder(() => CONTEXT);
  const read: ChatEvent[] = [];
  for (const event of events) {
    decoder.push(Buffer.from(`event: x\ndata: ${JSON.stringify(event)}\n\n`), read);
  }
  decoder.end(read);
  return read;
}

const content = (index: number, piece: object) => ({
  type: "content-delta",
  index,
  delta: { message: { content: piece } },
});
const cited = (text: string, start: number, end: number, more: object = {}) => ({
  start,
  end,
  text,
  type: "TEXT_CONTENT",
  sources: [
    { type: "document", id: "d", document: { url: "https://a.test", title: "A" } },
    { type: "tool", id: "t", tool_output: { link: "https://b.test" } },
    { type: "document", id: "e", document: { text: "without an address" } },
  ],
  ...more,
});
const citation = (url: string, title: string, start_index: number, end_index: number) => ({
  type: "url_citation",
  url_citation: { url, title, start_index, end_index },
});

test("citations of sources with an address become annotations, counted as JavaScript counts", () => {
  const message = {
    content: [
      { type: "thinking", thinking: "Hm." },
      { type: "text", text: "\u{1f44b} hello sky" },
    ],
    citations: [
      cited("sky", 8, 11, { content_index: 1 }),
      cited("Hm", 0, 2, { type: "THINKING_CONTENT", content_index: 0 }),
      cited("?", 0, 1, { content_index: 7 }),
    ],
  };
  const { choices } = completionOf({ message, finish_reason: "COMPLETE" });
  const wanted = [citation("https://a.test", "A", 9, 12), citation("https://b.test", "", 9, 12)];
  expect(choices[0]).toMatchObject({ reasoning: "Hm.", annotations: wanted });
  const streamed = eventsOf([
    content(0, { thinking: "Hm." }),
    content(1, { text: "\u{1f44b} hello " }),
    content(1, { text: "sky" }),
    {
      type: "citation-start",
      index: 0,
      delta: { message: { citations: cited("sky", 8, 11, { content_index: 1 }) } },
    },
    { type: "citation-end", index: 0 },
  ]);
  expect(streamed.at(-1)).toEqual({ type: "text", choice: 0, text: "", annotations: wanted });
});

test("blocks of thinking, and a plan, are details of their own", () => {
  const format = "cohere-v2";
  const message = {
    content: [
      { type: "thinking", thinking: "One." },
      { type: "thinking", thinking: "Two." },
    ],
    tool_plan: "Look.",
    tool_calls: [{ id: "a", type: "function", function: { name: "look", arguments: "" } }],
  };
  const details = [
    { type: "reasoning.text", text: "One.", format, index: 0 },
    { type: "reasoning.text", text: "Two.", format, index: 1 },
    { type: "reasoning.summary", summary: "Look.", format, index: 2 },
  ];
  const { choices } = completionOf({ message, finish_reason: "TOOL_CALL" });
  expect(choices[0]).toEqual({
    text: undefined,
    reasoning: "One.Two.Look.",
    reasoningDetails: details,
    toolCalls: [{ id: "a", name: "look", arguments: "{}" }],
    annotations: undefined,
    finish: "tool_calls",
  } as never);
  const streamed = eventsOf([
    content(0, { thinking: "On" }),
    content(0, { thinking: "e." }),
    content(1, { thinking: "Two." }),
    { type: "tool-plan-delta", delta: { message: { tool_plan: "Look." } } },
  ]);
  expect(streamed.map((event) => (event.type === "reasoning" ? event.details![0] : event))).toEqual(
    [
      { ...details[0]!, text: "On" },
      { ...details[0]!, text: "e." },
      details[1]!,
      details[2]!,
    ] as never,
  );
});

test("what is billed counts, and of it the share that was cached", () => {
  const usage = (raw: object) => reportedUsage(raw);
  const billed_units = { input_tokens: 2_406, output_tokens: 2 };
  const tokens = { input_tokens: 2_935, output_tokens: 4 };
  expect(usage({ billed_units, tokens, cached_tokens: 2_928 })).toMatchObject({
    promptTokens: 2_406,
    // 2406 × 2928 / 2935
    cachedPromptTokens: 2_400,
    completionTokens: 2,
    estimated: false,
  });
  expect(usage({ tokens })).toMatchObject({ promptTokens: 2_935, completionTokens: 4 });
  expect(usage({ billed_units, tokens, cached_tokens: 9_999 })!.cachedPromptTokens).toBe(2_406);
  expect(usage({ billed_units, cached_tokens: -1 })!.cachedPromptTokens).toBe(0);
  for (const lie of [
    {},
    { billed_units: { input_tokens: 0, output_tokens: 0 } },
    { billed_units: { input_tokens: 1.5, output_tokens: 1 } },
    { billed_units: { input_tokens: 5 } },
    { billed_units: { input_tokens: "5", output_tokens: 1 } },
    { billed_units: { input_tokens: 1e300, output_tokens: 1 } },
    { billed_units: { input_tokens: 5, output_tokens: -1 } },
  ]) {
    expect(usage(lie)).toBeUndefined();
  }
});

test("no JSON makes the reader do more than fail as a provider, and its events have their form", () => {
  const any = fc.jsonValue();
  const odd = fc.oneof(any, fc.constantFrom("COMPLETE", "ERROR", "text", 0, 1, true));
  const part = fc.record({ text: odd, thinking: odd }, { requiredKeys: [] });
  const call = fc.record(
    { id: odd, function: fc.oneof(any, fc.record({ name: odd, arguments: odd })) },
    { requiredKeys: [] },
  );
  const citations = fc.record({ start: odd, end: odd, text: odd, sources: any, type: odd });
  const message = fc.record(
    {
      content: fc.oneof(any, part, fc.array(part)),
      tool_plan: odd,
      tool_calls: fc.oneof(any, call, fc.array(call)),
      citations: fc.oneof(any, citations, fc.array(citations)),
    },
    { requiredKeys: [] },
  );
  const event = fc.record(
    {
      type: fc.constantFrom(
        "content-start",
        "content-delta",
        "tool-plan-delta",
        "tool-call-start",
        "tool-call-delta",
        "tool-call-end",
        "citation-start",
        "message-end",
        "unheard-of",
      ),
      index: odd,
      delta: fc.oneof(
        any,
        fc.record({ message, finish_reason: odd, usage: any, error: odd }, { requiredKeys: [] }),
      ),
    },
    { requiredKeys: ["type"] },
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(any, event), { maxLength: 6 }), message, (events, whole) => {
      asProvider(() => eventsOf(events).forEach(expectEvent));
      asProvider(() => {
        expect(completionOf({ message: whole }).choices).toHaveLength(1);
      });
    }),
    { numRuns: 250 },
  );
});

function asProvider(run: () => void): void {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(ProviderFailure);
  }
}

function expectEvent(event: ChatEvent): void {
  if (event.type === "error") expect(event.failure).toBeInstanceOf(ProviderFailure);
  else if (event.type === "usage") {
    for (const count of Object.values(event.usage)) {
      if (typeof count !== "boolean") expect(Number.isSafeInteger(count) && count >= 0).toBeTrue();
    }
  } else {
    expect(event.choice).toBe(0);
    if ("text" in event) expect(event.text).toBeString();
  }
}
