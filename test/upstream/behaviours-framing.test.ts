import { afterAll, beforeEach, expect, test } from "bun:test";
import { ask, askRaw, askStream } from "./ask.ts";
import { expectedOfStream, expectedOfWhole } from "./expected.ts";
import {
  listRecordings,
  loadErrorRecording,
  loadJsonFixture,
  loadRecording,
} from "./recordings.ts";
import { startUpstream } from "./server.ts";

const CONTENT = "Grüße, 世界 — 👋🏽!";
const upstream = await startUpstream();
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

test.each([
  ["crlf", /^data: [^\n]+\r\n\r\n/],
  ["cr", /^data: [^\n]+\r\r/],
  ["no-space", /^data:\{/],
  ["multi-line-data", /^data: \{\ndata: {3}"id"/],
  ["comments", /^: PROCESSING\n:\n: several lines\n\n: data: \{\}\ndata: \{/],
  ["event-fields", /^event: message\nid: 7\nretry: 1000\nunknown\ndata: \{/],
  ["bom", /^\uFEFFdata: \{/],
  [
    "azure",
    /^data: \{"id":"","object":"","created":0,"model":"","choices":\[\],"prompt_filter_results":\[/,
  ],
] as const)(
  "%s says the regular thing to a reader who follows the SSE standard",
  async (name, opening) => {
    upstream.behave("m", { do: name, content: CONTENT });
    const asked = await askStream(upstream, "m");
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(asked.bytes);
    expect(text).toMatch(opening);
    const parsed = reframed(text);
    expect(parsed.at(-1)).toBe("[DONE]");
    expect(expectedOfStream(parsed.map((data) => `data: ${data}\n\n`).join(""))).toMatchObject({
      content: CONTENT,
      finishReason: "stop",
      usage: { promptTokens: 2 },
    });
    expect(expectedOfWhole(JSON.parse((await ask(upstream, "m")).text)).content).toBe(CONTENT);
  },
);

test("Azure's form has filter results beside each delta and one choice without a delta", async () => {
  upstream.behave("m", { do: "azure" });
  const chunks = reframed((await askStream(upstream, "m")).text)
    .filter((data) => data !== "[DONE]")
    .map((data) => JSON.parse(data));
  const choices = chunks.flatMap((chunk) => chunk.choices);
  expect(choices.every((choice) => choice.content_filter_results.hate.severity === "safe")).toBe(
    true,
  );
  expect(choices.filter((choice) => choice.delta === undefined)).toHaveLength(1);
});

test("invalid UTF-8 is inside the content, streamed and whole", async () => {
  upstream.behave("m", { do: "invalid-utf8" });
  for (const asked of [await askStream(upstream, "m"), await ask(upstream, "m")]) {
    expect(() => new TextDecoder("utf-8", { fatal: true }).decode(asked.bytes)).toThrow();
    expect(asked.text).toContain('"content":"a\uFFFD\uFFFD\uFFFDb"');
  }
});

test.each(listRecordings())("%s is replayed byte for byte", async (name) => {
  const recording = loadRecording(name);
  const asked = await (recording.stream ? askStream : ask)(upstream, `replay:${name}`);
  expect(asked.status).toBe(200);
  if (recording.stream) {
    expect(Buffer.compare(asked.bytes, recording.sse)).toBe(0);
  } else {
    expect(JSON.parse(asked.text)).toEqual(recording.json);
  }
  const { expected } = recording;
  expect(upstream.served[0]).toMatchObject({
    finished: true,
    contentCharactersSent: expected.content.length,
  });
  expect(upstream.totals()[`replay:${name}`]).toMatchObject({
    promptTokens: expected.usage?.promptTokens ?? 0,
    completionTokens: expected.usage?.completionTokens ?? 0,
  });
});

test("a replay is cut at random offsets, the same ones for the same seed", async () => {
  const recording = "pydantic-ai/openrouter/test_openrouter_streaming_reasoning.yaml";
  const { sse } = loadRecording(recording);
  const lengthsOf = async (seed: number) => {
    upstream.behave("m", { do: "replay", recording, seed });
    const { chunks } = await askRaw(upstream, '{"model":"m","messages":[],"stream":true}');
    expect(Buffer.compare(Buffer.concat(chunks), sse)).toBe(0);
    return chunks.map((chunk) => chunk.length);
  };
  const cuts = [await lengthsOf(2), await lengthsOf(2), await lengthsOf(3)];
  expect(cuts[0]!.length).toBeGreaterThan(10);
  expect(cuts[1]).toEqual(cuts[0]!);
  expect(cuts[2]).not.toEqual(cuts[0]!);
});

test("a recorded error is replayed with its status, and a recording in the wrong form is refused", async () => {
  const name = "pydantic-ai/errors/test_model_name_suggestion_groq_.yaml";
  const asked = await ask(upstream, `replay:${name}`);
  expect([asked.status, JSON.parse(asked.text)]).toEqual([404, loadErrorRecording(name).json]);
  const stream = await ask(upstream, "replay:vercel-ai/mistral/mistral-text.chunks.txt");
  expect(stream).toMatchObject({ status: 400, text: expect.stringContaining("is a stream") });
});

test("embeddings are deterministic, in floats and base64 alike, and recorded ones are replayed", async () => {
  const embed = async (body: object) => {
    const response = await fetch(`${upstream.baseUrl}/embeddings`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    return response.json();
  };
  const floats = await embed({ model: "e", input: ["a", "b"], dimensions: 4 });
  const base64 = await embed({
    model: "e",
    input: ["a", "b"],
    dimensions: 4,
    encoding_format: "base64",
  });
  const decoded = new Float32Array(
    Uint8Array.from(Buffer.from(base64.data[1].embedding, "base64")).buffer,
  );
  expect([...decoded]).toEqual(floats.data[1].embedding);
  expect(floats).toMatchObject({ model: "e", usage: { prompt_tokens: 1, total_tokens: 1 } });
  const file = "openai-node/embeddings-base64-response.json";
  expect(await embed({ model: `replay:${file}`, input: "a" })).toEqual(loadJsonFixture(file));
});

/** The data of each event, as the SSE standard reads it (WHATWG HTML §9.2.6), JSON in one line. */
function reframed(text: string): string[] {
  const events = text
    .replace(/^\uFEFF/, "")
    .replace(/\r\n|\r/g, "\n")
    .split("\n\n");
  return events
    .map((event) =>
      event
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice("data:".length).replace(/^ /, ""))
        .join(" "),
    )
    .filter((data) => data !== "");
}
