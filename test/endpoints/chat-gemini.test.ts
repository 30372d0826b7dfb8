import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { builtInModels } from "../../src/providers/catalogue/provider-models.ts";
import { chargeNano, MAX_OUTPUT_TOKENS, PRICES } from "../support/chat-gateway.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import {
  type GeminiRecording,
  geminiRateLimit,
  geminiRecordings,
  geminiUnknownModel,
} from "../upstream/gemini-recordings.ts";

/** Google's wire through the whole gateway. */

type Fields = Record<string, unknown>;
interface Asked {
  readonly url: URL;
  readonly headers: Headers;
  readonly body: Fields;
}
type Scripted = (asked: Asked) => Response | Promise<Response>;

const KEY = "AIzaKeyOfTheGeminiTests0123456789";
let script: Scripted;
let asked: Asked;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const body = (await request.json()) as Fields;
    asked = { url: new URL(request.url), headers: request.headers, body };
    return script(asked);
  },
});

const MODELS = ["gemini-2.0-flash", "gemini-2.5-flash", "gemini-3-pro-preview", "gemini-3.8-flash"];
const SPARES = 60;
let gateway: TestGateway;
beforeAll(async () => {
  const usd = (femto: bigint) => Number(femto) / 1e15;
  const model = (id: string, name: string, more: object = {}) => ({
    id: `test/${id}`,
    category: "chat",
    context_length: 128_000,
    max_output_tokens: MAX_OUTPUT_TOKENS,
    input_cost_per_token: usd(PRICES.inputFemto),
    output_cost_per_token: usd(PRICES.outputFemto),
    cached_input_cost_per_token: usd(PRICES.cachedFemto),
    capabilities: ["streaming", "function_calling", "vision"],
    endpoints: [{ provider: "google", model: name }],
    ...more,
  });
  gateway = await startTestGateway({
    configuration: {
      providers: [
        {
          id: "google",
          type: "google",
          base_url: `http://127.0.0.1:${server.port}/v1beta`,
          api_key: KEY,
        },
      ],
      models: [
        ...MODELS.map((name) => model(name, name)),
        // The health of one test's endpoint decides nothing in another.
        ...Array.from({ length: SPARES }, (_, at) => model(`spare-${at}`, `gemini-3-spare${at}`)),
      ],
    },
  });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await server.stop(true);
});

let spares = 0;
const spare = () => `spare-${spares++}`;

function chat(model: string, body: Fields = {}) {
  const messages = [{ role: "user", content: "hello" }];
  return gateway.request("POST", "/v1/chat/completions", {
    model: model.includes("/") ? model : `test/${model}`,
    messages,
    ...body,
  });
}

let seed = 1;
/** A number from 1 to `most`: the same ones in each run. */
function random(most: number): number {
  seed = (seed * 48_271) % 2_147_483_647;
  return 1 + (seed % most);
}

function streamed(bytes: Uint8Array): Response {
  const body = new ReadableStream({
    async start(controller) {
      for (let at = 0; at < bytes.length; ) {
        const end = at + random(400);
        controller.enqueue(bytes.slice(at, end));
        at = end;
        await Bun.sleep(0);
      }
      controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

const frames = (...responses: readonly unknown[]) =>
  streamed(Buffer.from(responses.map((one) => `data: ${JSON.stringify(one)}\r\n\r\n`).join("")));
const USAGE = { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 };
const answer = (
  parts: readonly unknown[],
  finishReason?: string,
  usageMetadata: unknown = USAGE,
) => ({
  candidates: [{ content: { parts, role: "model" }, ...(finishReason && { finishReason }) }],
  usageMetadata,
});

describe("recorded answers", () => {
  test.each(geminiRecordings())(
    "$name comes in the client's form, and its charge is exact",
    async (one) => {
      for (let round = 0; round < 3; round++) await replay(one);
    },
  );

  async function replay({ stream, bytes, expected, responses }: GeminiRecording) {
    script = () => (stream ? streamed(bytes) : Response.json(responses[0]));
    const response = await chat(MODELS[2]!, {
      stream,
      ...(stream && { stream_options: { include_usage: true } }),
    });
    expect(response.status).toBe(200);
    const method = stream ? ":streamGenerateContent?alt=sse" : ":generateContent";
    expect(asked.url.pathname + asked.url.search).toBe(`/v1beta/models/${MODELS[2]}${method}`);
    const read = stream ? await readStreamed(response) : await readWhole(response);
    const finish = expected.calls.length > 0 ? "tool_calls" : "stop";
    expect(expected.finishReason).toBe("STOP");
    expect(read).toMatchObject({ content: expected.content, finish, details: expected.signatures });
    expect(read.calls.map(({ name, args }) => ({ name, args }))).toEqual(
      expected.calls.map(({ name, args }) => ({ name, args })),
    );
    expect(read.calls.map(({ signature }) => signature)).toEqual(
      expected.calls.map(({ signature }) => signature),
    );
    expect(new Set(read.calls.map(({ id }) => id)).size).toBe(expected.calls.length);
    expect(read.usage).toMatchObject({
      prompt_tokens: expected.promptTokens,
      completion_tokens: expected.completionTokens,
      completion_tokens_details: { reasoning_tokens: expected.reasoningTokens },
    });
    const bill = await billOfResponse(gateway, response);
    const { promptTokens: prompt, completionTokens: completion, reasoningTokens } = expected;
    expect(bill).toMatchObject({
      chargeNano: chargeNano({ prompt, completion }),
      reasoningTokens,
      estimated: false,
    });
  }

  async function readStreamed(response: Response) {
    const read = await readStream(response);
    expectStreamShape(read, { model: `test/${MODELS[2]}`, includesUsage: true });
    const deltas = read.chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta));
    return {
      content: read.content,
      finish: read.finishReason,
      details: deltas.flatMap((delta) => dataOf(delta.reasoning_details)),
      calls: deltas.flatMap((delta) => callsOf(delta.tool_calls)),
      usage: read.usage,
    };
  }

  async function readWhole(response: Response) {
    const body = (await response.json()) as { choices: Fields[]; usage: Fields };
    const message = body.choices[0]!.message as Fields;
    return {
      content: message.content,
      finish: body.choices[0]!.finish_reason,
      details: dataOf(message.reasoning_details),
      calls: callsOf(message.tool_calls),
      usage: body.usage,
    };
  }
});

function dataOf(details: unknown): string[] {
  return ((details ?? []) as { data: string }[]).map(({ data }) => data);
}

function callsOf(calls: unknown) {
  type Call = { id: string; function: Fields; extra_content?: { google: Fields } };
  return ((calls ?? []) as Call[]).map(({ id, function: called, extra_content: extra }) => ({
    id,
    name: called.name,
    args: JSON.parse(called.arguments as string) as unknown,
    signature: extra?.google.thought_signature,
  }));
}

test("the key goes in a header, and neither an address nor an error nor a log holds it", async () => {
  script = () => {
    const error = { code: 400, message: `bad ${KEY}`, status: "INVALID_ARGUMENT" };
    return Response.json({ error }, { status: 400 });
  };
  const response = await chat(spare());
  expect(response.status).toBe(400);
  expect(asked.headers.get("x-goog-api-key")).toBe(KEY);
  expect(asked.headers.get("authorization")).toBeNull();
  expect(asked.url.href).not.toContain(KEY);
  expect(await response.text()).not.toContain(KEY);
  expect(gateway.logLines.join("")).not.toContain(KEY);
});

describe("a conversation of several turns", () => {
  test("the model gets back what it sent, signatures and thoughts in their places", async () => {
    const parts = [
      [
        { text: "Let me look.", thought: true },
        { functionCall: { name: "look", args: { at: "sky" } }, thoughtSignature: "sig-1" },
        { functionCall: { name: "look", args: { at: "sea" } } },
      ],
      [
        { text: "Now I stop.", thought: true },
        { text: "Blue.", thoughtSignature: "sig-2" },
      ],
    ];
    const contents = await converse(parts);
    const ids = contents[1]!.parts.flatMap(({ functionCall }) => functionCall?.id ?? []);
    expect(ids).toHaveLength(2);
    expect(contents).toEqual([
      { role: "user", parts: [{ text: "What colour?" }] },
      {
        role: "model",
        parts: [
          parts[0]![0],
          {
            functionCall: { id: ids[0], name: "look", args: { at: "sky" } },
            thoughtSignature: "sig-1",
          },
          { functionCall: { id: ids[1], name: "look", args: { at: "sea" } } },
        ],
      },
      {
        role: "user",
        parts: [
          { functionResponse: { id: ids[0], name: "look", response: { output: "blue" } } },
          { functionResponse: { id: ids[1], name: "look", response: { colour: "green" } } },
        ],
      },
      { role: "model", parts: parts[1] },
      { role: "user", parts: [{ text: "Thanks." }] },
    ] as never);
  });

  test("a client that keeps extra_content alone continues too, and one that keeps nothing is not refused", async () => {
    const call = { functionCall: { name: "look", args: {} }, thoughtSignature: "sig-1" };
    const drop = (name: string) => (message: Fields) => {
      delete message[name];
    };
    const kept = await converse([[call], [{ text: "Blue." }]], drop("reasoning_details"));
    expect(kept[1]!.parts[0]!.thoughtSignature).toBe("sig-1");
    const lost = await converse([[call], [{ text: "Blue." }]], (message) => {
      delete message.reasoning_details;
      for (const one of (message.tool_calls ?? []) as Fields[]) delete one.extra_content;
    });
    expect(lost[1]!.parts[0]!.thoughtSignature).toBe("skip_thought_signature_validator");
  });

  interface SentPart {
    readonly functionCall?: { readonly id: string };
    readonly thoughtSignature?: string;
  }

  /** Sends two turns, streamed and whole, and returns what the third one brings. */
  async function converse(
    answers: readonly (readonly unknown[])[],
    forget: (message: Fields) => void = () => {},
  ) {
    const model = MODELS[2]!;
    const messages: Fields[] = [{ role: "user", content: "What colour?" }];
    const tools = [
      { type: "function", function: { name: "look", parameters: { type: "object" } } },
    ];
    const body = { messages, tools, reasoning: { effort: "low" } };
    script = () => frames(...answers[0]!.map((part) => answer([part])), answer([], "STOP"));
    messages.push(await spoken(await chat(model, { ...body, stream: true })));
    forget(messages[1]!);
    const calls = messages[1]!.tool_calls as { id: string }[];
    messages.push(
      ...calls.map(({ id }, at) => ({
        role: "tool",
        tool_call_id: id,
        content: at === 0 ? "blue" : '{"colour": "green"}',
      })),
    );
    script = () => Response.json(answer(answers[1]!, "STOP"));
    const whole = (await (await chat(model, body)).json()) as { choices: Fields[] };
    messages.push(whole.choices[0]!.message as Fields);
    messages.push({ role: "user", content: "Thanks." });
    await chat(model, body);
    expect(asked.body.generationConfig).toMatchObject({
      thinkingConfig: { includeThoughts: true, thinkingLevel: "LOW" },
    });
    return asked.body.contents as { role: string; parts: SentPart[] }[];
  }

  /** The message that a client makes of a stream. */
  async function spoken(response: Response): Promise<Fields> {
    const read = await readStream(response);
    const deltas = read.chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta));
    return {
      role: "assistant",
      content: read.content || null,
      reasoning_details: deltas.flatMap((delta) => (delta.reasoning_details ?? []) as unknown[]),
      tool_calls: deltas.flatMap((delta) => (delta.tool_calls ?? []) as unknown[]),
    };
  }
});

describe("an error", () => {
  test("of a rate limit is 429 with the wait that RetryInfo tells", async () => {
    script = () => Response.json(geminiRateLimit(), { status: 429 });
    const response = await chat(spare());
    expect(response.status).toBe(429);
    expect(response.headers.get("retry-after")).toBe("35");
  });

  test.each(["UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"])(
    "%s is asked once, and 400 with Google's message",
    async (reason) => {
      const said = "The model called a tool that the request does not offer.";
      const failed = {
        candidates: [{ finishReason: reason, finishMessage: said }],
        usageMetadata: USAGE,
      };
      for (const stream of [false, true]) {
        let calls = 0;
        script = () => {
          calls++;
          return stream ? frames(failed) : Response.json(failed);
        };
        const response = await chat(spare(), { stream });
        expect(response.status).toBe(400);
        const { error } = (await response.json()) as { error: { code: string; message: string } };
        expect(error.code).toBe("provider_rejected");
        expect(error.message).toContain(said);
        expect(calls).toBe(1);
      }
      script = () => frames(answer([{ text: "said" }]), failed);
      const response = await chat(spare(), { stream: true });
      const read = await readStream(response);
      expect(read.error!.error.message).toContain(said);
      expect((await billOfResponse(gateway, response)).promptTokens).toBe(10);
    },
  );

  test("of an unknown model is the operator's, not the caller's", async () => {
    const { status, body } = geminiUnknownModel();
    script = () => Response.json(body, { status });
    const response = await chat(spare());
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({ error: { code: "provider_error" } });
  });

  test.each([false, true])(
    "of a blocked prompt is a content policy violation (stream %s)",
    async (stream) => {
      const blocked = {
        promptFeedback: { blockReason: "SAFETY" },
        usageMetadata: { promptTokenCount: 4 },
      };
      script = () => (stream ? frames(blocked) : Response.json(blocked));
      const response = await chat(spare(), { stream });
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({ error: { code: "content_policy_violation" } });
    },
  );

  test("in mid-stream is sent in the stream, and what came is charged", async () => {
    script = () =>
      frames(answer([{ text: "half of " }]), {
        error: { code: 503, message: "The model is overloaded.", status: "UNAVAILABLE" },
      });
    const response = await chat(spare(), { stream: true });
    const read = await readStream(response);
    expect(read).toMatchObject({ content: "half of ", isDone: false });
    expect(read.error!.error).toMatchObject({ code: "provider_error" });
    expect(await billOfResponse(gateway, response)).toMatchObject({
      chargeNano: chargeNano({ prompt: 10, completion: 5 }),
    });
  });
});

/** What a wrong answer comes to: its status before the first event, the code in the stream behind one. */
describe("garbage", () => {
  const text = (finish?: string) => answer([{ text: "said" }], finish);
  const raw = (...pieces: readonly string[]) => streamed(Buffer.from(pieces.join("")));
  const event = (one: unknown) => `data: ${JSON.stringify(one)}\r\n\r\n`;
  const BROKEN: readonly [what: string, () => Response][] = [
    ["an event that is no JSON", () => raw(event(text()), "data: {oh\r\n\r\n")],
    ["an event that is cut off", () => raw(event(text()), event(text("STOP")).slice(0, 40))],
    ["a stream without a finish reason", () => frames(text())],
    ["an event that is no object", () => frames(text(), 7)],
    [
      "an event nested too deeply",
      () => raw(event(text()), `data: ${"[".repeat(9_000)}${"]".repeat(9_000)}\r\n\r\n`),
    ],
    ["a malformed call", () => frames(text(), answer([], "MALFORMED_FUNCTION_CALL"))],
  ];
  test.each(BROKEN)(
    "%s ends the stream with an error, and what came is charged",
    async (_, made) => {
      script = made;
      const response = await chat(spare(), { stream: true });
      expect(response.status).toBe(200);
      const read = await readStream(response);
      expect(read).toMatchObject({ content: "said", isDone: false });
      expect(read.error!.error).toMatchObject({ code: "provider_error" });
      expect((await billOfResponse(gateway, response)).promptTokens).toBe(10);
    },
  );

  const NO_ANSWER: readonly [what: string, () => Response][] = [
    ["no JSON", () => new Response("<html>", { headers: { "content-type": "application/json" } })],
    ["no object", () => Response.json([])],
    ["no candidate", () => Response.json({ usageMetadata: USAGE })],
    ["an empty candidate", () => Response.json({ candidates: [{}] })],
    ["a malformed call", () => Response.json(answer([], "MALFORMED_FUNCTION_CALL"))],
    ["nothing, for another reason", () => Response.json(answer([], "OTHER"))],
    ["an error under 200", () => Response.json({ error: { code: 500, message: "internal" } })],
  ];
  test.each(NO_ANSWER)("an answer with %s is 502 and costs nothing", async (_, made) => {
    script = made;
    for (const stream of [false, true]) {
      const response = await chat(spare(), { stream });
      expect(response.status).toBe(502);
      const id = response.headers.get("x-gateway-request-id")!;
      const [row] =
        await gateway.sql`SELECT count(*)::int AS n FROM transactions WHERE request_id = ${id}`;
      expect(row!.n).toBe(0);
    }
  });

  test("parts of unknown kinds and what follows a finish reason are passed over", async () => {
    const odd = [
      { text: "one " },
      { executableCode: { language: "PYTHON", code: "1" } },
      { codeExecutionResult: { outcome: "OUTCOME_OK" } },
      { inlineData: { mimeType: "image/png", data: "AAAA" } },
      { somethingNew: true },
      null,
      "text",
      { text: 7 },
      { functionCall: { args: {} } },
      { text: "two" },
    ];
    const late = { candidates: [{ content: { parts: [{ text: "late" }] }, finishReason: "STOP" }] };
    script = () =>
      raw(": comment\r\n\r\n", event(answer(odd, "STOP")), event(late), "data: [DONE]\r\n\r\n");
    const read = await readStream(await chat(spare(), { stream: true }));
    expect(read).toMatchObject({
      content: "one two",
      finishReason: "stop",
      isDone: true,
      toolCalls: [],
    });
  });

  test.each([
    ["STOP", "stop"],
    ["MAX_TOKENS", "length"],
    ["SAFETY", "content_filter"],
    ["RECITATION", "content_filter"],
    ["PROHIBITED_CONTENT", "content_filter"],
    ["SPII", "content_filter"],
    ["BLOCKLIST", "content_filter"],
    ["LANGUAGE", "stop"],
    ["A_REASON_OF_NEXT_YEAR", "stop"],
  ])("the end %s without content is told as %s", async (reason, finish) => {
    script = () => Response.json(answer([], reason));
    const whole = (await (await chat(MODELS[1]!)).json()) as { choices: Fields[] };
    expect(whole.choices[0]).toMatchObject({ finish_reason: finish, message: { content: null } });
    script = () => frames(answer([], reason));
    expect(await readStream(await chat(MODELS[1]!, { stream: true }))).toMatchObject({
      finishReason: finish,
      isDone: true,
    });
  });

  test.each(["SAFETY", "RECITATION"])("%s in mid-stream ends what was said", async (reason) => {
    script = () => frames(text(), answer([{ text: " more" }], reason));
    expect(await readStream(await chat(MODELS[1]!, { stream: true }))).toMatchObject({
      content: "said more",
      finishReason: "content_filter",
      isDone: true,
    });
  });

  test("a prompt that is blocked in mid-stream is an error there", async () => {
    script = () => frames(text(), { promptFeedback: { blockReason: "PROHIBITED_CONTENT" } });
    const { content, error, isDone } = await readStream(await chat(spare(), { stream: true }));
    expect({ content, isDone }).toEqual({ content: "said", isDone: false });
    expect(error!.error.code).toBe("content_policy_violation");
  });

  test("a usage that shrinks is the last one", async () => {
    const counted = (candidatesTokenCount: number) => ({
      promptTokenCount: 10,
      candidatesTokenCount,
    });
    script = () =>
      frames(
        answer([{ text: "a" }], undefined, counted(900)),
        answer([{ text: "b" }], "STOP", counted(2)),
      );
    const response = await chat(MODELS[1]!, { stream: true });
    await response.text();
    expect(await billOfResponse(gateway, response)).toMatchObject({
      completionTokens: 2,
      estimated: false,
    });
  });

  test("arguments are JSON, whatever the wire has in their place", async () => {
    const calls = [undefined, null, 7, "text", [], { a: [1] }].map((args) => ({
      functionCall: { name: "look", args },
    }));
    script = () => frames(answer(calls, "STOP"));
    const { toolCalls } = await readStream(await chat(MODELS[1]!, { stream: true }));
    expect(toolCalls.map((call) => call.arguments)).toEqual([
      "{}",
      "{}",
      "{}",
      "{}",
      "{}",
      '{"a":[1]}',
    ]);
  });

  test.each([
    ["negative", { promptTokenCount: -5, candidatesTokenCount: -7 }],
    ["enormous", { promptTokenCount: 1e300, candidatesTokenCount: 1e300 }],
    ["fractional", { promptTokenCount: 1.5, candidatesTokenCount: 2.5 }],
    ["texts", { promptTokenCount: "12", candidatesTokenCount: "7" }],
    ["zero", { promptTokenCount: 0, candidatesTokenCount: 0 }],
    ["a list", [1, 2]],
    ["absent", null],
    ["of the prompt alone", { promptTokenCount: 10, totalTokenCount: 10 }],
  ])("a usage that is %s is counted here", async (_, usage) => {
    for (const stream of [false, true]) {
      const said = answer([{ text: "eight by" }], "STOP", usage);
      script = () => (stream ? frames(said) : Response.json(said));
      const response = await chat(MODELS[1]!, { stream });
      await response.text();
      const bill = await billOfResponse(gateway, response);
      expect(bill.estimated).toBeTrue();
      expect(bill.completionTokens).toBeGreaterThan(0);
    }
  });

  test("a usage beyond the hold is charged up to it", async () => {
    const usage = { promptTokenCount: 1e9, candidatesTokenCount: 1e9 };
    script = () => Response.json(answer([{ text: "a" }], "STOP", usage));
    const response = await chat(MODELS[1]!, { max_tokens: 10 });
    expect(response.status).toBe(200);
    const { chargeNano: charge } = await billOfResponse(gateway, response);
    expect(charge).toBeLessThan(chargeNano({ prompt: 1_000, completion: 10 }));
  });
});

test("cached, thought, tool and media tokens are told apart, and sound has its own price", async () => {
  script = () =>
    Response.json(
      answer([{ text: "heard" }], "STOP", {
        promptTokenCount: 1_000,
        toolUsePromptTokenCount: 50,
        cachedContentTokenCount: 300,
        candidatesTokenCount: 20,
        thoughtsTokenCount: 30,
        promptTokensDetails: [
          { modality: "TEXT", tokenCount: 500 },
          { modality: "AUDIO", tokenCount: 400 },
          { modality: "IMAGE", tokenCount: 100 },
        ],
        cacheTokensDetails: [{ modality: "TEXT", tokenCount: 300 }],
      }),
    );
  const sound = { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } };
  const response = await chat("google/gemini-2.5-flash", {
    messages: [{ role: "user", content: [sound] }],
  });
  expect(response.status).toBe(200);
  expect(await response.json()).toMatchObject({
    usage: {
      prompt_tokens: 1_050,
      completion_tokens: 50,
      prompt_tokens_details: { cached_tokens: 300 },
      completion_tokens_details: { reasoning_tokens: 30 },
    },
  });
  const bill = await billOfResponse(gateway, response);
  expect(bill.quantities).toEqual({ audio_prompt_tokens: 400, image_prompt_tokens: 100 });
  const { prices } = (await builtInModels("google", new Date())).models.find(
    ({ id }) => id === "google/gemini-2.5-flash",
  )!;
  expect(prices.audioInputTokenFemto).not.toBe(prices.inputTokenFemto);
  const cost =
    350n * prices.inputTokenFemto +
    400n * prices.audioInputTokenFemto! +
    300n * prices.cachedInputTokenFemto +
    50n * prices.outputTokenFemto;
  expect(bill.chargeNano).toBe((cost * 10_400n + 5_000_000_000n) / 10_000_000_000n);
});

test("several candidates are several choices", async () => {
  const one = (index: number, text: string, finishReason?: string) => ({
    index,
    content: { parts: [{ text }] },
    ...(finishReason && { finishReason }),
  });
  script = () =>
    frames(
      { candidates: [one(0, "a"), one(1, "b")] },
      { candidates: [one(1, "B", "STOP")] },
      { candidates: [one(0, "A", "MAX_TOKENS")], usageMetadata: USAGE },
    );
  const response = await chat(MODELS[1]!, { n: 2, stream: true });
  const { chunks, isDone } = await readStream(response);
  expect(asked.body.generationConfig).toMatchObject({ candidateCount: 2 });
  const said = ["", ""];
  for (const { choices } of chunks) {
    for (const { index, delta } of choices) said[index] += (delta.content as string) ?? "";
  }
  expect(said).toEqual(["aA", "bB"]);
  expect(isDone).toBeTrue();
});

test("what a model lacks is refused by name, or left out and told", async () => {
  script = () => Response.json(answer([{ text: "ok" }], "STOP"));
  const dropped = async (model: string, body: Fields) => {
    const response = await chat(model, body);
    expect(response.status).toBe(200);
    return response.headers.get("x-gateway-dropped-parameters");
  };
  const hints = { temperature: 0.5, presence_penalty: 1, user: "u", seed: 7 };
  expect(await dropped(MODELS[0]!, hints)).toBe("user");
  expect(asked.body.generationConfig).toEqual({ temperature: 0.5, presencePenalty: 1, seed: 7 });
  expect(await dropped(MODELS[3]!, hints)).toBe("temperature, presence_penalty, user");
  expect(asked.body.generationConfig).toEqual({ seed: 7 });
  expect(await dropped(MODELS[3]!, { reasoning: { effort: "none", max_tokens: 9 } })).toBe(
    "reasoning.effort, reasoning.max_tokens",
  );
  expect(asked.body.generationConfig).toEqual({ thinkingConfig: { thinkingLevel: "LOW" } });
  expect(await dropped(MODELS[0]!, { reasoning: { effort: "low" } })).toBe("reasoning");
  for (const [field, value] of [
    ["n", 2],
    ["logprobs", true],
    ["parallel_tool_calls", false],
  ] as const) {
    const response = await chat(MODELS[3]!, { [field]: value });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: { code: "unsupported_parameter", param: field },
    });
  }
});

test("a body that is too long for the event loop is rendered in a thread, and refused by name there too", async () => {
  script = () => Response.json(answer([{ text: "read" }], "STOP"));
  const long = "ä".repeat(200_000);
  const response = await chat(MODELS[1]!, { messages: [{ role: "user", content: long }] });
  expect(response.status).toBe(200);
  expect(asked.body).toEqual({ contents: [{ role: "user", parts: [{ text: long }] }] });
  const content = [{ type: "text", text: long }, { type: "hologram" }];
  const refused = await chat(MODELS[1]!, { messages: [{ role: "user", content }] });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({ error: { param: "messages.0.content.1" } });
});
