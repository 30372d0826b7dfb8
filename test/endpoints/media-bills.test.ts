import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { startAudioUpstream } from "../support/audio-upstream.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { imageList, picture } from "../support/images-gateway.ts";
import { type Bill, billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { delta, done, ScriptedSound } from "../support/speech-upstream.ts";
import { until } from "../support/until.ts";

/*
 * What calls of images and sound are charged, against the prices that GET /v1/models states: of the sandbox,
 * and of OpenAI's models at a scripted server. GATEWAY_TEST_TABLES=1 prints it as Markdown.
 */

/** Amounts by the names that prices have in `pricing`; an image of a size and a quality as `1024x1024 hd`. */
type Uses = Readonly<Record<string, number>>;

interface Row {
  readonly call: string;
  readonly model: string;
  readonly send: (model: string) => Promise<Response>;
  /** What OpenAI's server answers. */
  readonly answer?: () => Response;
  /** The client leaves when so many bytes have come. */
  readonly leavesAfterBytes?: number;
  /** Undefined where nothing is charged. */
  readonly uses: Uses | undefined;
  /** As the client sees it, or as the ledger has it where the client left. */
  readonly status: number;
}

const FEE_PERCENT = 4n;

const TEXT = "Grüße 👋👋!";
const CHARACTERS = 9;
/** 17 bytes, of which 4 are a token. */
const ESTIMATED_TOKENS = 5;
/** Of PCM: 24,000 samples of two bytes. */
const BYTES_A_SECOND = 48_000;
/** Where the provider has not reported any. */
const TOKENS_A_SECOND = 21;
const silence = (seconds: number) => Buffer.alloc(seconds * BYTES_A_SECOND);

const upstream = startAudioUpstream();
const TWO_SECONDS = await Bun.file(join(import.meta.dir, "../fixtures/audio/a.wav")).bytes();

let gateway: TestGateway;
beforeAll(async () => {
  const endpoints = (model: string) => [{ provider: "openai", model }];
  gateway = await startTestGateway({
    plan: "free",
    configuration: {
      providers: [
        { id: "openai", type: "openai", base_url: `${upstream.origin}/v1`, api_key: "sk-1" },
        { id: "own", type: "openai-compatible", base_url: `${upstream.origin}/v1` },
      ],
      models: [
        {
          id: "test/dall-e-3",
          category: "image",
          cost_per_image: 0.04,
          image_prices: [
            { size: "1024x1024", quality: "standard", cost_per_image: 0.04 },
            { size: "1024x1792", quality: "standard", cost_per_image: 0.08 },
            { size: "1024x1792", quality: "hd", cost_per_image: 0.12 },
          ],
          endpoints: endpoints("dall-e-3"),
        },
        {
          id: "test/speech-by-second",
          category: "audio",
          capabilities: ["speech"],
          cost_per_second: 2.5e-4,
          endpoints: [{ provider: "own", model: "voice" }],
        },
      ],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});

const images = (fields: object) => (model: string) =>
  gateway.request("POST", "/v1/images/generations", { model, prompt: "a boat", ...fields });
const speech = (fields: object) => (model: string) =>
  gateway.request("POST", "/v1/audio/speech", { model, voice: "alloy", input: TEXT, ...fields });

const form =
  (path: string, name: string, file: Uint8Array<ArrayBuffer>, fields: Record<string, string>) =>
  (model: string) => {
    const body = new FormData();
    for (const [field, value] of Object.entries({ model, ...fields })) body.set(field, value);
    body.set(name, new Blob([file]), "upload");
    const headers = { authorization: `Bearer ${gateway.secretKey}` };
    return fetch(`${gateway.baseUrl}/v1/${path}`, { method: "POST", headers, body });
  };
const recording = (task: "transcriptions" | "translations", fields = {}) =>
  form(`audio/${task}`, "file", TWO_SECONDS, fields);

const sound = (bytes: Uint8Array, type = "audio/pcm") => new ScriptedSound(type).say(bytes);
const events = () => new ScriptedSound("text/event-stream");
const imageUsage = (text: number, image: number, output: number) => ({
  usage: {
    input_tokens: text + image,
    output_tokens: output,
    total_tokens: text + image + output,
    input_tokens_details: { text_tokens: text, image_tokens: image },
  },
});
/** Claims two hours. */
const TRANSCRIPT = {
  ...{ task: "transcribe", language: "english", duration: 7_200, text: "Hello." },
  segments: [{ id: 0, start: 0, end: 2, text: " Hello." }],
  usage: { type: "duration", seconds: 7_200 },
};
const HEARD = {
  type: "tokens",
  input_tokens: 30,
  input_token_details: { text_tokens: 10, audio_tokens: 20 },
  output_tokens: 5,
  total_tokens: 35,
};

const SANDBOX_ROWS: readonly Row[] = [
  {
    call: "two images",
    model: "sandbox/image",
    send: images({ n: 2, size: "64x64" }),
    uses: { image: 2 },
    status: 200,
  },
  {
    call: "an edit",
    model: "sandbox/image",
    send: (model) =>
      form("images/edits", "image", picture(32, 32), { prompt: "more sea", size: "64x64" })(model),
    uses: { image: 1 },
    status: 200,
  },
  {
    call: "a refused image",
    model: "sandbox/image-refusal",
    send: images({}),
    uses: undefined,
    status: 400,
  },
  {
    call: "speech, mp3",
    model: "sandbox/tts",
    send: speech({}),
    uses: { character: CHARACTERS },
    status: 200,
  },
  {
    call: "speech whose client leaves",
    model: "sandbox/tts-slow",
    send: speech({ response_format: "pcm", input: `${TEXT} ${"Hello there. ".repeat(200)}` }),
    leavesAfterBytes: 1_000,
    uses: { character: CHARACTERS + 1 + 2_600 },
    status: 499,
  },
  {
    call: "a transcription of 2 s",
    model: "sandbox/stt",
    send: recording("transcriptions"),
    uses: { second: 2 },
    status: 200,
  },
];

const IMAGE_ROWS: readonly Row[] = [
  {
    call: "an image, standard",
    model: "test/dall-e-3",
    send: images({ size: "1024x1024", quality: "standard" }),
    answer: () => imageList([picture(1024, 1024)]),
    uses: { "1024x1024 standard": 1 },
    status: 200,
  },
  {
    call: "a tall image, standard",
    model: "test/dall-e-3",
    send: images({ size: "1024x1792", quality: "standard" }),
    answer: () => imageList([picture(1024, 1792)]),
    uses: { "1024x1792 standard": 1 },
    status: 200,
  },
  {
    call: "a tall image, hd",
    model: "test/dall-e-3",
    send: images({ size: "1024x1792", quality: "hd" }),
    answer: () => imageList([picture(1024, 1792)]),
    uses: { "1024x1792 hd": 1 },
    status: 200,
  },
  {
    call: "an image by token",
    model: "openai/gpt-image-2.5-flare",
    send: images({ quality: "low" }),
    answer: () => imageList([picture(1024, 1024)], imageUsage(13, 0, 272)),
    uses: { prompt: 13, completion: 272 },
    status: 200,
  },
  {
    call: "an edit by token",
    model: "openai/gpt-image-2.5-flare",
    send: (model) => form("images/edits", "image", picture(32, 32), { prompt: "a sea" })(model),
    answer: () => imageList([picture(1024, 1024)], imageUsage(13, 323, 1_056)),
    uses: { prompt: 13, input_image: 323, completion: 1_056 },
    status: 200,
  },
];

const SOUND_ROWS: readonly Row[] = [
  {
    call: "speech by character",
    model: "openai/tts-1",
    send: speech({ response_format: "pcm" }),
    answer: () => sound(silence(1)).end().response,
    uses: { character: CHARACTERS },
    status: 200,
  },
  {
    call: "its client leaves after 2 s",
    model: "openai/tts-1",
    send: speech({ response_format: "pcm" }),
    answer: () => sound(silence(2)).response,
    leavesAfterBytes: 2 * BYTES_A_SECOND,
    uses: { character: CHARACTERS },
    status: 499,
  },
  {
    call: "speech that is not spoken",
    model: "openai/tts-1-hd",
    send: speech({}),
    answer: () => Response.json({ error: { message: "no" } }, { status: 400 }),
    uses: undefined,
    status: 400,
  },
  {
    call: "speech by token",
    model: "openai/gpt-4o-mini-tts",
    send: speech({ response_format: "pcm" }),
    answer: () =>
      events()
        .say(delta(silence(1)))
        .say(done(11, 57))
        .end().response,
    uses: { prompt: 11, completion: 57 },
    status: 200,
  },
  {
    call: "its client leaves after 2 s",
    model: "openai/gpt-4o-mini-tts",
    send: speech({ response_format: "pcm" }),
    answer: () => events().say(delta(silence(2))).response,
    leavesAfterBytes: 2 * BYTES_A_SECOND,
    uses: { prompt: ESTIMATED_TOKENS, completion: 2 * TOKENS_A_SECOND },
    status: 499,
  },
  {
    call: "3 s of speech",
    model: "test/speech-by-second",
    send: speech({ response_format: "pcm" }),
    answer: () => sound(silence(3)).end().response,
    uses: { second: 3 },
    status: 200,
  },
  {
    call: "SubRip of 2 s, called 7,200",
    model: "openai/whisper-1",
    send: recording("transcriptions", { response_format: "srt" }),
    answer: () => Response.json(TRANSCRIPT),
    uses: { second: 2 },
    status: 200,
  },
  {
    call: "a translation of 2 s",
    model: "openai/whisper-1",
    send: recording("translations"),
    answer: () => Response.json(TRANSCRIPT),
    uses: { second: 2 },
    status: 200,
  },
  {
    call: "a transcription by token",
    model: "openai/gpt-4o-transcribe",
    send: recording("transcriptions"),
    answer: () => Response.json({ text: "Hello.", usage: HEARD }),
    uses: { prompt: 10, input_audio: 20, completion: 5 },
    status: 200,
  },
];

const ROWS = [...SANDBOX_ROWS, ...IMAGE_ROWS, ...SOUND_ROWS];
const printed: string[] = [];

test.each(ROWS.map((row) => [`${row.call} of ${row.model}`, row] as const))(
  "%s costs what was used at the stated prices, and 4 %%",
  async (_, row) => {
    upstream.answer = row.answer ?? (() => new Response("not expected", { status: 500 }));
    const response = await row.send(row.model);
    if (row.leavesAfterBytes === undefined) await response.arrayBuffer();
    else await readAndLeave(response, row.leavesAfterBytes);
    const requestId = response.headers.get("x-gateway-request-id")!;
    const look = () => billOf(gateway, requestId);
    const bill = row.uses === undefined ? await look() : await until("it is charged", look);
    const status = row.leavesAfterBytes === undefined ? response.status : bill?.status;
    const expected = row.uses === undefined ? 0n : await priceOf(row.model, row.uses);
    printed.push(asLine(row, bill, expected));
    expect({ status, chargeNano: bill?.chargeNano ?? 0n }).toEqual({
      status: row.status,
      chargeNano: expected,
    });
  },
);

test("the books are closed behind all of them", async () => {
  await expectBooksClosed(gateway);
  const [sum] =
    await gateway.sql`SELECT count(*)::int AS rows FROM transactions WHERE type = 'usage'`;
  expect(sum!.rows).toBe(ROWS.filter(({ uses }) => uses !== undefined).length);
  if (process.env.GATEWAY_TEST_TABLES !== "1") return;
  const head = "| call | model | status | price of each, USD | charge, nano-USD | expected |";
  console.log([head, "| --- | --- | --- | --- | --- | --- |", ...printed].join("\n"));
});

async function readAndLeave(response: Response, bytes: number): Promise<void> {
  const reader = response.body!.getReader();
  for (let read = 0; read < bytes; ) read += (await reader.read()).value!.length;
  await reader.cancel();
}

interface Described {
  readonly pricing: Record<string, string>;
  readonly image_pricing?: readonly { size: string; quality: string; image: string }[];
}
const stated = new Map<string, Record<string, string>>();

/** The prices of a model in USD, by the names of uses. */
async function pricesOf(model: string): Promise<Record<string, string>> {
  const known = stated.get(model);
  if (known !== undefined) return known;
  const response = await gateway.request("GET", `/v1/models/${model}`);
  const { pricing, image_pricing: variants = [] } = (await response.json()) as Described;
  const byVariant = variants.map((one) => [`${one.size} ${one.quality}`, one.image] as const);
  const prices = { ...pricing, ...Object.fromEntries(byVariant) };
  stated.set(model, prices);
  return prices;
}

/** With the fee, rounded half up to a nano-USD. */
async function priceOf(model: string, uses: Uses): Promise<bigint> {
  const prices = await pricesOf(model);
  let femto = 0n;
  for (const [use, amount] of Object.entries(uses)) {
    const [whole, fraction = ""] = prices[use]!.split(".");
    femto += BigInt(whole + fraction.padEnd(15, "0")) * BigInt(amount);
  }
  return (femto * (100n + FEE_PERCENT) + 50_000_000n) / 100_000_000n;
}

function asLine({ call, model, status, uses }: Row, bill: Bill | undefined, expected: bigint) {
  const prices = stated.get(model);
  const parts = Object.entries(uses ?? {}).map(([use, n]) => `${n} ${use} × ${prices?.[use]}`);
  const what = parts.length === 0 ? "–" : parts.join(" + ");
  return `| ${call} | ${model} | ${status} | ${what} | ${bill?.chargeNano ?? 0n} | ${expected} |`;
}
