import { afterAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { systemClock } from "../../src/lib/clock.ts";
import type { ProviderFailure } from "../../src/providers/interface.ts";
import type { Transcript, TranscriptEvent, TranscriptStream } from "../../src/providers/media.ts";
import { createProviders } from "../../src/providers/registry.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import { mediaFile } from "../support/image-upstream.ts";

/** What OpenAI's form of transcripts is read as, at providers of several types. */

let answer: () => Response = () => new Response();
let asked: { path: string; headers: Headers; form: FormData } | undefined;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const { pathname, search } = new URL(request.url);
    asked = { path: pathname + search, headers: request.headers, form: await request.formData() };
    return answer();
  },
});
afterAll(() => server.stop(true));

const base = `http://127.0.0.1:${server.port}`;
const settings = (id: string, type: string, baseUrl: string, extra: object = {}) => ({
  ...{ id, type, baseUrl, apiKey: "key-0123456789", connectTimeoutMs: 5_000 },
  ...extra,
});
const providers = createProviders(
  [
    settings("openai", "openai", `${base}/v1`),
    settings("azure", "azure", base, { apiVersion: "2024-10-21" }),
    settings("groq", "groq", `${base}/openai/v1`),
    settings("own", "openai-compatible", `${base}/v1`),
  ],
  {
    clock: systemClock,
    httpClient: createHttpClient({ clock: systemClock }),
    providerFactories: {},
  } as never,
);

const NEEDS = { words: false, segments: false, speakers: false };

async function transcribe(provider: string, call: object = {}) {
  return providers.get(provider)!.transcribe!({
    ...{ model: "whisper-1", requestId: "req_1", signal: new AbortController().signal },
    ...{ task: "transcribe", durationMs: 2_000, needs: NEEDS, stream: false, fields: {} },
    file: mediaFile(Buffer.from("sound"), "file.wav", "audio/wav"),
    ...call,
  } as never);
}

const failureOf = (call: Promise<unknown>) =>
  call.then(
    () => Promise.reject(new Error("it was answered")),
    (error: ProviderFailure) => error,
  );

test("a recorded answer of OpenAI is read with its words, and tokens that it does not have are none", async () => {
  const path = `${import.meta.dir}/../fixtures/vercel-ai/openai-other/openai-transcription.json`;
  const recorded = JSON.parse(readFileSync(path, "utf8"));
  answer = () => Response.json(recorded);
  const needs = { ...NEEDS, words: true };
  const read = (await transcribe("openai", { needs })) as Transcript;
  expect(read).toMatchObject({ text: recorded.text, language: "english", words: recorded.words });
  expect(read.usage).toBeUndefined();
  expect(asked!.form.getAll("timestamp_granularities[]")).toEqual(["word"]);
});

test.each([
  ["openai", {}, "/v1/audio/transcriptions"],
  ["openai", { task: "translate" }, "/v1/audio/translations"],
  ["azure", {}, "/openai/deployments/whisper-1/audio/transcriptions?api-version=2024-10-21"],
  ["groq", {}, "/openai/v1/audio/transcriptions"],
  ["own", {}, "/v1/audio/transcriptions"],
])("%s is asked at its own address, with its key: %o", async (provider, call, path) => {
  answer = () => Response.json({ text: "Hi" });
  expect(await transcribe(provider, call)).toMatchObject({ text: "Hi" });
  expect(asked!.path).toBe(path);
  const { headers } = asked!;
  expect(headers.get("api-key") ?? headers.get("authorization")).toEndWith("key-0123456789");
  const file = asked!.form.get("file") as File;
  expect([file.name, await file.text()]).toEqual(["file.wav", "sound"]);
});

test("usage in tokens tells those of sound", async () => {
  const usage = { type: "tokens", input_tokens: 14, output_tokens: 45, total_tokens: 59 };
  answer = () =>
    Response.json({ text: "Hi", usage: { ...usage, input_token_details: { audio_tokens: 4 } } });
  const read = (await transcribe("openai", { model: "gpt-4o-transcribe" })) as Transcript;
  expect(read.usage).toMatchObject({
    promptTokens: 14,
    audioPromptTokens: 4,
    completionTokens: 45,
    estimated: false,
  });
});

test("a stream is read as events, cut anywhere, and one without its end breaks", async () => {
  const events = [
    { type: "transcript.text.delta", delta: "Grüße", logprobs: [{ token: "Grüße", logprob: -1 }] },
    { type: "transcript.text.done", text: "Grüße", usage: { input_tokens: 3, output_tokens: 1 } },
  ];
  const read = async (text: string) => {
    const bytes = Buffer.from(text);
    answer = () =>
      new Response(
        new ReadableStream({
          start(controller) {
            for (let at = 0; at < bytes.length; at += 5)
              controller.enqueue(bytes.subarray(at, at + 5));
            controller.close();
          },
        }),
        { headers: { "content-type": "text/event-stream" } },
      );
    const call = { model: "gpt-4o-transcribe", stream: true };
    const { reader } = (await transcribe("openai", call)) as TranscriptStream;
    const all: TranscriptEvent[] = [];
    const pieces = reader();
    for (;;) {
      const { done, value } = await pieces.read();
      if (done) return all;
      all.push(...value!);
    }
  };
  const text = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  expect(await read(text)).toMatchObject([
    { type: "text", text: "Grüße", logprobs: events[0]!.logprobs },
    { type: "done", transcript: { text: "Grüße", usage: { promptTokens: 3 } } },
  ]);
  const cut = await read(text.slice(0, 60 + text.indexOf("done")));
  expect(cut.at(-1)).toMatchObject({ type: "error", failure: { kind: "unavailable" } });
  const failed = await read(
    `data: {"type":"error","error":{"message":"no","code":"rate_limit_exceeded"}}\n\n`,
  );
  expect(failed).toMatchObject([{ type: "error", failure: { kind: "rate_limited" } }]);
});

test.each<[string, () => Response, string]>([
  ["no JSON", () => new Response("text"), "unavailable"],
  ["JSON without a text", () => Response.json({ segments: [] }), "unavailable"],
  [
    "segments without times",
    () => Response.json({ text: "x", segments: [{ text: "x" }] }),
    "unavailable",
  ],
  [
    "an error under a status of success",
    () => Response.json({ error: { message: "x" } }),
    "unavailable",
  ],
  [
    "a file that is refused",
    () => Response.json({ error: { message: "bad" } }, { status: 400 }),
    "rejected",
  ],
  ["too many requests", () => new Response("", { status: 429 }), "rate_limited"],
  ["a wrong key", () => new Response("", { status: 401 }), "misconfigured"],
])("an answer of %s is a failure", async (_, response, kind) => {
  answer = response;
  expect((await failureOf(transcribe("openai"))).kind).toBe(kind as never);
});
