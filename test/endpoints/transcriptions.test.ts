import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { MP3_FRAME, mp4, programStream, repeated, trak } from "../support/crafted-sound.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";

/** Transcriptions and translations of a recording of two seconds, through providers of OpenAI's form. */

const recording = (name: string) => readFileSync(`${import.meta.dir}/../fixtures/audio/${name}`);
const WAV = recording("a.wav");

interface Asked {
  readonly provider: string;
  readonly path: string;
  readonly headers: Headers;
  readonly fields: Record<string, string[]>;
  readonly file: Buffer;
}

let answers: Record<string, (asked: Asked) => Response> = {};
let asked: Asked[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const { pathname } = new URL(request.url);
    const [, provider = "", , ...path] = pathname.split("/");
    const form = await request.formData();
    const fields: Record<string, string[]> = {};
    for (const [name, value] of form) {
      if (typeof value !== "string") continue;
      fields[name] = [...(fields[name] ?? []), value];
    }
    const file = Buffer.from(await (form.get("file") as File).bytes());
    const one = { provider, path: path.join("/"), headers: request.headers, fields, file };
    asked.push(one);
    return answers[provider]!(one);
  },
});

let gateway: TestGateway;
let slug = 0;
beforeAll(async () => {
  const model = (id: string, name: string, terms: object) => ({
    ...{ id, category: "audio", capabilities: ["transcription"], ...terms },
    endpoints: [
      { provider: "first", model: name },
      { provider: "second", model: name },
    ],
  });
  const bySecond = { cost_per_second: 1e-4 };
  const byToken = { input_cost_per_token: 1e-6, output_cost_per_token: 1e-5 };
  gateway = await startTestGateway({
    configuration: {
      providers: ["first", "second"].map((id) => ({
        ...{ id, type: "openai", api_key: "sk-upstream-0123456789" },
        base_url: `http://127.0.0.1:${server.port}/${id}/v1`,
      })),
      models: Array.from({ length: 40 }, (_, at) => [
        model(`test/whisper-${at}`, "whisper-1", bySecond),
        model(`test/listener-${at}`, "gpt-4o-transcribe", byToken),
        model(`test/diarizer-${at}`, "gpt-4o-transcribe-diarize", bySecond),
      ]).flat(),
    },
  });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await server.stop(true);
});
// An endpoint's health in one test decides nothing in the next.
beforeEach(() => {
  slug++;
  asked = [];
  answers = {};
});

type Fields = Record<string, string | readonly string[]>;

function formOf(fields: Fields, file: Uint8Array = WAV, name = "speech.wav"): FormData {
  const form = new FormData();
  for (const [field, value] of Object.entries(fields)) {
    for (const one of [value].flat()) form.append(field, one as string);
  }
  form.append("file", new Blob([file as Uint8Array<ArrayBuffer>], { type: "text/plain" }), name);
  return form;
}

function post(path: string, body: BodyInit, headers: Record<string, string> = {}) {
  return fetch(`${gateway.baseUrl}/v1/audio/${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${gateway.secretKey}`, ...headers },
    body,
  });
}

const whisper = () => `test/whisper-${slug}`;
const listener = () => `test/listener-${slug}`;

const VERBOSE = {
  task: "transcribe",
  language: "english",
  duration: 7_200,
  text: "Hello there. Bye.",
  segments: [
    { id: 0, seek: 0, start: 0, end: 1.25, text: " Hello there.", avg_logprob: -0.2, tokens: [1] },
    { id: 1, seek: 0, start: 1.25, end: 2, text: " Bye.", avg_logprob: -0.3, tokens: [2] },
  ],
  words: [{ word: "Hello", start: 0, end: 0.5 }],
  usage: { type: "duration", seconds: 7_200 },
};
const TOKENS = {
  type: "tokens",
  input_tokens: 30,
  input_token_details: { text_tokens: 10, audio_tokens: 20 },
  output_tokens: 5,
  total_tokens: 35,
};

/** Two seconds at 100,000 nano-USD, and 4 % of it. */
const TWO_SECONDS_NANO = 208_000n;

describe("a transcription", () => {
  test.each<[string, string, string]>([
    ["text", "text/plain; charset=utf-8", "Hello there. Bye.\n"],
    [
      "srt",
      "application/x-subrip; charset=utf-8",
      "1\n00:00:00,000 --> 00:00:01,250\nHello there.\n\n2\n00:00:01,250 --> 00:00:02,000\nBye.\n\n",
    ],
    [
      "vtt",
      "text/vtt; charset=utf-8",
      "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nHello there.\n\n00:00:01.250 --> 00:00:02.000\nBye.\n\n",
    ],
  ])("comes as %s, and is billed by the seconds that were measured", async (format, type, body) => {
    answers = { first: () => Response.json(VERBOSE) };
    const response = await post(
      "transcriptions",
      formOf({ model: whisper(), response_format: format }),
    );
    expect([response.status, response.headers.get("content-type")]).toEqual([200, type]);
    expect(await response.text()).toBe(body);
    expect(response.headers.get("x-gateway-cost")).toBe("0.000208");
    expect(await billOfResponse(gateway, response)).toMatchObject({ chargeNano: TWO_SECONDS_NANO });
    const [call] = asked;
    expect(call!.fields.response_format).toEqual(["verbose_json"]);
  });

  test("in detail has the measured duration, segments and words, and the form goes on with its length", async () => {
    answers = { first: () => Response.json(VERBOSE) };
    const response = await post(
      "transcriptions",
      formOf({
        model: whisper(),
        response_format: "verbose_json",
        "timestamp_granularities[]": ["word", "segment"],
        prompt: "Names: Ångström",
        temperature: "0.2",
        language: "en",
      }),
    );
    expect(await response.json()).toEqual({
      ...VERBOSE,
      duration: 2,
      usage: { type: "duration", seconds: 2, cost: 0.000208 },
    });
    const { fields, headers, file, path } = asked[0]!;
    expect(path).toBe("audio/transcriptions");
    expect(fields).toEqual({
      model: ["whisper-1"],
      response_format: ["verbose_json"],
      "timestamp_granularities[]": ["segment", "word"],
      prompt: ["Names: Ångström"],
      temperature: ["0.2"],
      language: ["en"],
    });
    expect(file).toEqual(WAV);
    expect(headers.get("transfer-encoding")).toBeNull();
    expect(Number(headers.get("content-length"))).toBeGreaterThan(WAV.length);
    expect(headers.get("authorization")).toBe("Bearer sk-upstream-0123456789");
  });

  test("costs the seconds that the provider reports if these are more than were measured, up to the hold", async () => {
    // Samples of 700 bytes may hold several frames, of which only a decoder can tell the number.
    const samples = 87;
    const file = mp4(Buffer.alloc(samples * 700, 0x21), trak({ samples, sampleBytes: 700 }));
    const bill = async (answer: object) => {
      answers = { first: () => Response.json({ text: "Hello.", ...answer }) };
      const response = await post("transcriptions", formOf({ model: whisper() }, file, "a.m4a"));
      expect(asked.at(-1)!.fields.response_format).toEqual(["verbose_json"]);
      const { usage } = (await response.json()) as { usage: { seconds: number } };
      return [usage.seconds, (await billOfResponse(gateway, response)).chargeNano];
    };
    expect(await bill({ duration: 2 })).toEqual([2.021, 210_184n]);
    expect(await bill({ duration: 10 })).toEqual([10, 1_040_000n]);
    expect(await bill({ usage: { type: "duration", seconds: 10 } })).toEqual([10, 1_040_000n]);
    // 87 samples of 700 bytes at 4,000 bytes a second, of which whole seconds are held.
    expect(await bill({ duration: 7_200 })).toEqual([15.225, 1_664_000n]);
  });

  test("of an MPEG program stream costs the seconds of its frames", async () => {
    answers = { first: () => Response.json({ text: "Hello." }) };
    const file = programStream(repeated(77, () => MP3_FRAME));
    const response = await post("transcriptions", formOf({ model: whisper() }, file, "a.mpeg"));
    expect(await response.json()).toMatchObject({ usage: { seconds: 2.012 } });
  });

  test("of a file that nothing here can measure is 400, and calls no provider", async () => {
    const ac3 = Buffer.concat([MP3_FRAME, MP3_FRAME, Buffer.alloc(40_000, 9)]);
    const response = await post("transcriptions", formOf({ model: whisper() }, ac3, "a.mp3"));
    await expectError(response, 400, "invalid_body");
    expect(asked).toEqual([]);
  });

  test("of a model that is priced by tokens costs those that are reported, or are counted here", async () => {
    answers = { first: () => Response.json({ text: "Hello.", usage: TOKENS }) };
    const response = await post("transcriptions", formOf({ model: listener() }));
    // 30 and 5 tokens at 1,000 and 10,000 nano-USD, and 4 %.
    expect(await response.json()).toEqual({
      text: "Hello.",
      usage: { ...TOKENS, cost: 0.0000832 },
    });
    expect(await billOfResponse(gateway, response)).toMatchObject({
      chargeNano: 83_200n,
      estimated: false,
    });
    answers = { first: () => Response.json({ text: "Hello." }) };
    const counted = await post("transcriptions", formOf({ model: listener() }));
    expect(await counted.json()).toMatchObject({
      usage: { input_token_details: { audio_tokens: 20 } },
    });
    expect(await billOfResponse(gateway, counted)).toMatchObject({ estimated: true });
    answers = {
      first: () => Response.json({ text: "x", usage: { ...TOKENS, input_tokens: 1e9 } }),
    };
    const clamped = await post("transcriptions", formOf({ model: listener() }));
    const { chargeNano } = await billOfResponse(gateway, clamped);
    expect(chargeNano).toBeLessThan(20_000_000n);
  });

  test("of speakers names them, and of log probabilities has them", async () => {
    const segments = [
      { type: "transcript.text.segment", id: "seg_9", start: 0, end: 1, text: "Hi", speaker: "B" },
    ];
    answers = { first: () => Response.json({ text: "Hi", segments }) };
    const fields = {
      model: `test/diarizer-${slug}`,
      response_format: "diarized_json",
      "chunking_strategy[type]": "server_vad",
      "known_speaker_names[]": ["B"],
    };
    const response = await post("transcriptions", formOf(fields));
    expect(await response.json()).toMatchObject({
      ...{ task: "transcribe", duration: 2, text: "Hi" },
      segments: [{ id: "seg_001", speaker: "B", start: 0, end: 1 }],
    });
    expect(asked[0]!.fields).toMatchObject({
      response_format: ["diarized_json"],
      "chunking_strategy[type]": ["server_vad"],
      "known_speaker_names[]": ["B"],
    });
    const logprobs = [{ token: "Hi", logprob: -0.1, bytes: [72, 105] }];
    answers = { first: () => Response.json({ text: "Hi", logprobs, usage: TOKENS }) };
    const detailed = await post(
      "transcriptions",
      formOf({ model: listener(), "include[]": "logprobs" }),
    );
    expect(await detailed.json()).toMatchObject({ logprobs });
    expect(asked[1]!.fields["include[]"]).toEqual(["logprobs"]);
  });

  test("falls back with the same file where a provider fails, or sends no segments", async () => {
    answers = {
      first: () => Response.json({ text: "only text" }),
      second: () => Response.json(VERBOSE),
    };
    const response = await post(
      "transcriptions",
      formOf({ model: whisper(), response_format: "srt" }),
    );
    expect(response.headers.get("x-gateway-provider")).toBe("second");
    expect(asked.at(-1)!.file).toEqual(WAV);
  });

  test("with an idempotency key is replayed with its type, and another file is a conflict", async () => {
    answers = { first: () => Response.json(VERBOSE) };
    const form = (file?: Uint8Array) => formOf({ model: whisper(), response_format: "vtt" }, file);
    const headers = { "idempotency-key": `vtt-${slug}` };
    const first = await post("transcriptions", form(), headers);
    const again = await post("transcriptions", form(), headers);
    expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(again.headers.get("content-type")).toBe("text/vtt; charset=utf-8");
    expect(await again.text()).toBe(await first.text());
    expect(asked).toHaveLength(1);
    const other = await post("transcriptions", form(recording("a.mp3")), headers);
    await expectError(other, 409, "idempotency_conflict");
  });
});

test("a translation is asked for at its own address, and says that it is English", async () => {
  answers = { first: () => Response.json({ ...VERBOSE, task: "translate", language: "german" }) };
  const fields = { model: whisper(), response_format: "verbose_json", language: "de" };
  const response = await post("translations", formOf(fields, recording("a.m4a"), "a.m4a"));
  expect(await response.json()).toMatchObject({ task: "translate", language: "english" });
  expect(asked[0]!.path).toBe("audio/translations");
  expect(asked[0]!.fields.timestamp_granularities).toBeUndefined();
  const unable = await post("translations", formOf({ model: listener() }));
  await expectError(unable, 400, "unsupported_parameter");
});

describe("a stream", () => {
  const frame = (event: object) => `data: ${JSON.stringify(event)}\n\n`;
  const delta = (text: string) => frame({ type: "transcript.text.delta", delta: text });
  const stream = (...frames: string[]) =>
    new Response(frames.join(""), { headers: { "content-type": "text/event-stream" } });
  const eventsIn = async (response: Response) =>
    (await response.text())
      .split("\n\n")
      .filter((one) => one.startsWith("data: "))
      .map((one) => JSON.parse(one.slice(6)) as Record<string, unknown>);

  test("tells the text as it comes, then the whole with its cost", async () => {
    const done = { type: "transcript.text.done", text: "Grüße 😀", usage: TOKENS };
    answers = { first: () => stream(delta("Grüße "), delta("😀"), frame(done)) };
    const response = await post("transcriptions", formOf({ model: listener(), stream: "true" }));
    expect(response.headers.get("content-type")).toStartWith("text/event-stream");
    expect(await eventsIn(response)).toEqual([
      { type: "transcript.text.delta", delta: "Grüße " },
      { type: "transcript.text.delta", delta: "😀" },
      { ...done, usage: { ...TOKENS, cost: 0.0000832 } },
    ]);
    expect(asked[0]!.fields.stream).toEqual(["true"]);
    expect(await billOfResponse(gateway, response)).toMatchObject({ chargeNano: 83_200n });
  });

  test("of a model without streams is one of a whole transcript", async () => {
    answers = { first: () => Response.json({ text: "Hello." }) };
    const response = await post("transcriptions", formOf({ model: whisper(), stream: "true" }));
    expect(await eventsIn(response)).toEqual([
      { type: "transcript.text.delta", delta: "Hello." },
      {
        type: "transcript.text.done",
        text: "Hello.",
        usage: { type: "duration", seconds: 2, cost: 0.000208 },
      },
    ]);
    expect(asked[0]!.fields.stream).toBeUndefined();
    expect(await billOfResponse(gateway, response)).toMatchObject({ chargeNano: TWO_SECONDS_NANO });
  });

  test("tells speakers by segments, and of silence the end alone", async () => {
    const segment = {
      type: "transcript.text.segment",
      id: "x",
      start: 0,
      end: 1,
      text: "Hi",
      speaker: "A",
    };
    answers = {
      first: () => stream(frame(segment), frame({ type: "transcript.text.done", text: "Hi" })),
    };
    const fields = {
      model: `test/diarizer-${slug}`,
      response_format: "diarized_json",
      stream: "true",
    };
    const events = await eventsIn(await post("transcriptions", formOf(fields)));
    expect(events[0]).toEqual({ ...segment, id: "seg_001" });
    answers = { first: () => stream(frame({ type: "transcript.text.done", text: "" })) };
    const silent = await post("transcriptions", formOf({ model: listener(), stream: "true" }));
    expect((await eventsIn(silent)).map(({ type }) => type)).toEqual(["transcript.text.done"]);
  });

  test("that breaks off ends with an error, and what came is charged", async () => {
    answers = { first: () => stream(delta("Hello")), second: () => stream(delta("Hello")) };
    const response = await post("transcriptions", formOf({ model: listener(), stream: "true" }));
    const events = await eventsIn(response);
    expect(events.at(-1)).toMatchObject({ error: { code: "provider_error" } });
    expect((await billOfResponse(gateway, response)).chargeNano).toBeGreaterThan(0n);
  });
});

describe("a request is refused before any provider is called", () => {
  test.each<[string, Uint8Array]>([
    ["HTML named mp3", Buffer.from("<!doctype html><title>404</title>")],
    ["HTML behind a tag of ID3", Buffer.from(`ID3\x04\0\0\0\0\0\0${"<p>".repeat(500)}`)],
    ["a zip", Buffer.from("504b0304140000000800", "hex")],
    ["no byte", new Uint8Array()],
    ["a WAV that is cut in its heading", WAV.subarray(0, 40)],
    ["one byte above 25 MB", Buffer.concat([WAV, Buffer.alloc(25 * 1024 * 1024 - WAV.length + 1)])],
  ])("whose file is %s", async (_, file) => {
    const response = await post("transcriptions", formOf({ model: whisper() }, file, "a.mp3"));
    const { error } = await expectError(response, 400, "invalid_body");
    expect(error.param).toBe("file");
    expect(asked).toEqual([]);
  });

  test.each<[string, Fields, string]>([
    [
      "times of words without verbose_json",
      { "timestamp_granularities[]": "word" },
      "timestamp_granularities",
    ],
    ["an unknown format", { response_format: "ass" }, "response_format"],
    ["subtitles as a stream", { response_format: "srt", stream: "true" }, "stream"],
    ["a temperature above 1", { temperature: "1.1" }, "temperature"],
    ["log probabilities of text", { "include[]": "logprobs", response_format: "text" }, "include"],
  ])("with %s", async (_, fields, param) => {
    const response = await post("transcriptions", formOf({ model: whisper(), ...fields }));
    expect((await expectError(response, 400, "invalid_body")).error.param).toBe(param);
    expect(asked).toEqual([]);
  });

  test("that asks a model for what it lacks, or is no form, or names no model", async () => {
    const subtitles = await post(
      "transcriptions",
      formOf({ model: listener(), response_format: "srt" }),
    );
    const { error } = await expectError(subtitles, 400, "unsupported_parameter");
    expect(error.param).toBe("response_format");
    const json = await post("transcriptions", "{}", { "content-type": "application/json" });
    await expectError(json, 415, "unsupported_media_type");
    const unknown = await post("transcriptions", formOf({ model: "test/nobody" }));
    await expectError(unknown, 404, "model_not_found");
    expect(asked).toEqual([]);
  });
});

test("what a provider says of the file is passed on, without its key", async () => {
  const message = "Audio file might be corrupted (sk-upstream-0123456789)";
  answers = { first: () => Response.json({ error: { message, param: "file" } }, { status: 400 }) };
  const response = await post("transcriptions", formOf({ model: whisper() }));
  const { error } = await expectError(response, 400, "provider_rejected");
  expect(error.message).toContain("might be corrupted");
  expect(error.message).not.toContain("0123456789");
});
