import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { inPieces } from "../support/anthropic-upstream.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { type ReadStream, readStream } from "../support/stream-reader.ts";
import { loadJsonFixture } from "../upstream/recordings.ts";

/** Cohere's wire through the whole gateway. Its recordings are replayed with those of all providers. */

type Fields = Record<string, unknown>;
interface Asked {
  readonly path: string;
  readonly headers: Headers;
  readonly body: Fields;
}

const KEY = "co-key-of-the-cohere-tests-0123456789";
let answer: (asked: Asked) => Response;
let asked: Asked[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const { pathname, search } = new URL(request.url);
    if (request.method === "GET") return Response.json(MODEL_LIST, { headers: { search } });
    const one = {
      path: pathname,
      headers: request.headers,
      body: (await request.json()) as Fields,
    };
    asked.push(one);
    return answer(one);
  },
});

/** In the form of https://docs.cohere.com/reference/list-models */
const MODEL_LIST = {
  models: [{ name: "command-r7b-12-2024", endpoints: ["chat"], context_length: 132_096 }],
};

const MODEL = "cohere/command-r7b-12-2024";
/** In USD for a million tokens, from https://cohere.com/pricing. */
const PRICE = { input: 0.0375, output: 0.15 };
const SPARES = 40;
let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    // Without a fee, so that a charge is what the provider bills.
    plan: "enterprise",
    configuration: {
      providers: [
        {
          id: "cohere",
          type: "cohere",
          base_url: `http://127.0.0.1:${server.port}/v2`,
          api_key: KEY,
        },
      ],
      // The health of one test's endpoint decides nothing in another.
      models: Array.from({ length: SPARES }, (_, at) => ({
        id: `test/spare-${at}`,
        category: "chat",
        context_length: 128_000,
        max_output_tokens: 4_096,
        input_cost_per_token: 1e-6,
        output_cost_per_token: 1e-6,
        endpoints: [{ provider: "cohere", model: `command-x-${at}` }],
      })),
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await server.stop(true);
});
afterEach(() => expectBooksClosed(gateway));

let spares = 0;
const spare = () => `test/spare-${spares++}`;
const MESSAGES = [{ role: "user", content: "hello" }];

function chat(body: Fields = {}, model = MODEL) {
  asked = [];
  return gateway.request("POST", "/v1/chat/completions", { model, messages: MESSAGES, ...body });
}
const stream = (model?: string) =>
  chat({ stream: true, stream_options: { include_usage: true } }, model);

const framed = (events: readonly unknown[]) =>
  events.map((one) => `event: ${(one as Fields).type}\ndata: ${JSON.stringify(one)}\n\n`).join("");

const USAGE = {
  billed_units: { input_tokens: 40, output_tokens: 7 },
  tokens: { input_tokens: 500, output_tokens: 9 },
};
const start = {
  id: "1",
  type: "message-start",
  delta: { message: { role: "assistant", content: [], tool_plan: "", tool_calls: [] } },
};
const said = (text: string) => [
  { type: "content-start", index: 0, delta: { message: { content: { type: "text", text: "" } } } },
  { type: "content-delta", index: 0, delta: { message: { content: { text } } } },
  { type: "content-end", index: 0 },
];
const end = (finish_reason?: string, usage: unknown = USAGE, more: object = {}) => ({
  type: "message-end",
  delta: { finish_reason, usage, ...more },
});
const called = (text: string) => [
  {
    type: "tool-call-start",
    index: 0,
    delta: {
      message: {
        tool_calls: { id: "look_1", type: "function", function: { name: "look", arguments: "" } },
      },
    },
  },
  {
    type: "tool-call-delta",
    index: 0,
    delta: { message: { tool_calls: { function: { arguments: text } } } },
  },
  { type: "tool-call-end", index: 0 },
];
const MESSAGE = {
  id: "1",
  message: { role: "assistant", content: [{ type: "text", text: "hi" }] },
  finish_reason: "COMPLETE",
  usage: USAGE,
};

test("the built-in price is charged for what Cohere bills, and the key stands in a header alone", async () => {
  answer = () => Response.json(MESSAGE);
  const response = await chat();
  expect(response.status).toBe(200);
  expect(asked[0]!.path).toBe("/v2/chat");
  expect(asked[0]!.headers.get("authorization")).toBe(`Bearer ${KEY}`);
  expect(asked[0]!.body).toEqual({
    model: "command-r7b-12-2024",
    messages: MESSAGES,
    stream: false,
  });
  const bill = await billOfResponse(gateway, response);
  expect(bill).toMatchObject({ promptTokens: 40, completionTokens: 7, estimated: false });
  expect(Number(bill.chargeNano)).toBe(Math.round(40 * PRICE.input * 1e3 + 7 * PRICE.output * 1e3));
});

test("a long body is rendered in a thread, and refused by name there too", async () => {
  answer = () => Response.json(MESSAGE);
  const long = "ä".repeat(100_000);
  const response = await chat({ messages: [{ role: "user", content: long }] });
  expect(response.status).toBe(200);
  expect(asked[0]!.body.messages).toEqual([{ role: "user", content: long }]);
  const file = { file_data: "data:application/pdf;base64,AAAA" };
  const content = [
    { type: "text", text: long },
    { type: "file", file },
  ];
  const refused = await chat({ messages: [{ role: "user", content }] });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({ error: { param: "messages.0.content.1" } });
});

test.each([0, 300_000])(
  "Cohere's own fields reach it, and unknown ones are listed (%d characters more)",
  async (padding) => {
    answer = () => Response.json(MESSAGE);
    const documents = [{ id: "d", data: { text: "The sky is blue." } }, "another"];
    const response = await chat({
      messages: [{ role: "user", content: "x".repeat(padding) || "hello" }],
      documents,
      safety_mode: "STRICT",
      unheard_of: 1,
      user: "u",
    });
    expect(response.status).toBe(200);
    expect(asked[0]!.body).toMatchObject({ documents, safety_mode: "STRICT" });
    expect(asked[0]!.body.unheard_of).toBeUndefined();
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe("unheard_of, user");
  },
);

test("what Cohere lacks is refused by name, or left out and listed", async () => {
  answer = () => Response.json(MESSAGE);
  const hints = { user: "u", min_p: 0.1, seed: 7, reasoning: { effort: "low" } };
  const response = await chat(hints);
  expect(response.headers.get("x-gateway-dropped-parameters")).toBe("user, min_p, reasoning");
  expect(asked[0]!.body).toMatchObject({ seed: 7 });
  for (const [field, value] of [
    ["n", 2],
    ["logprobs", true],
    ["parallel_tool_calls", false],
  ] as const) {
    const refused = await chat({ [field]: value });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({
      error: { code: "unsupported_parameter", param: field },
    });
  }
});

describe("ends", () => {
  test.each([
    ["COMPLETE", "stop"],
    ["STOP_SEQUENCE", "stop"],
    ["MAX_TOKENS", "length"],
    ["TOOL_CALL", "tool_calls"],
    ["ERROR_TOXIC", "content_filter"],
    ["OF_NEXT_YEAR", "stop"],
  ])("%s is %s", async (reason, finish) => {
    answer = () => inPieces(framed([start, ...said("hi"), end(reason)]), () => 50);
    expect((await readStream(await stream())).finishReason).toBe(finish);
    answer = () => Response.json({ ...MESSAGE, finish_reason: reason });
    const { choices } = (await (await chat()).json()) as { choices: Fields[] };
    expect(choices[0]!.finish_reason).toBe(finish);
  });

  test.each([
    ["ERROR", 502, "provider_error"],
    ["TIMEOUT", 408, "provider_timeout"],
  ])("%s breaks an answer off", async (reason, status, code) => {
    answer = () => Response.json({ ...MESSAGE, finish_reason: reason });
    const whole = await chat({}, spare());
    expect(whole.status).toBe(status);
    expect(await whole.json()).toMatchObject({ error: { code } });
    answer = () => inPieces(framed([start, ...said("half"), end(reason)]), () => 50);
    const streamed = await stream(spare());
    const read = await readStream(streamed);
    expect(read).toMatchObject({ content: "half", isDone: false });
    expect(read.error!.error.code).toBe(code);
    // Cohere bills it.
    expect(await billOfResponse(gateway, streamed)).toMatchObject({
      promptTokens: 40,
      completionTokens: 7,
    });
  });
});

describe("streams that go wrong", () => {
  const cases: [
    name: string,
    events: unknown[],
    wanted: Partial<ReadStream> & { code?: string },
  ][] = [
    [
      "events, blocks and pieces of types that are not known are passed over",
      [
        { type: "unheard-of", delta: { message: { content: { text: "no" } } } },
        start,
        { type: "debug", prompt: "p", error: null },
        {
          type: "content-delta",
          index: 0,
          delta: { message: { content: { hologram: "x", text: 7 } } },
        },
        { type: "content-delta", index: 0 },
        { type: "tool-call-delta", index: 5, delta: { message: { tool_calls: null } } },
        { type: "citation-start", index: 0, delta: { message: { citations: 5 } } },
        ...said("hi"),
        end("COMPLETE"),
      ],
      { content: "hi", finishReason: "stop", isDone: true, toolCalls: [] },
    ],
    [
      "a stop without content is an empty answer",
      [start, end("COMPLETE")],
      { content: "", finishReason: "stop", isDone: true },
    ],
    [
      "what follows the end is not read",
      [start, ...said("hi"), end("COMPLETE"), ...said("late")],
      { content: "hi", isDone: true },
    ],
    [
      "tool input that is no JSON is handed on as it came",
      [start, ...called('{"at": sky'), end("TOOL_CALL")],
      {
        isDone: true,
        finishReason: "tool_calls",
        toolCalls: [{ index: 0, id: "look_1", name: "look", arguments: '{"at": sky' }],
      },
    ],
    [
      "calls without input have an empty object",
      [start, ...called(""), called("")[0], end("TOOL_CALL")],
      {
        isDone: true,
        toolCalls: [0, 1].map((index) => ({
          index,
          id: "look_1",
          name: "look",
          arguments: "{}",
        })),
      },
    ],
    [
      "an error event in mid-stream is sent in the stream",
      [start, ...said("half"), { type: "error", message: "went wrong" }],
      { content: "half", isDone: false, code: "provider_error" },
    ],
    [
      "a bare message in mid-stream is an error",
      [start, ...said("half"), { message: "internal server error" }],
      { content: "half", isDone: false, code: "provider_error" },
    ],
    [
      "an end with an error is an error",
      [start, ...said("half"), end(undefined, USAGE, { error: "went wrong" })],
      { content: "half", isDone: false, code: "provider_error" },
    ],
    [
      "an end without a reason is an error",
      [start, ...said("half"), end()],
      { content: "half", isDone: false, code: "provider_error" },
    ],
    [
      "a stream without its end is an error",
      [start, ...said("half")],
      { content: "half", isDone: false, code: "provider_error" },
    ],
    [
      "a call without a name is an error",
      [
        start,
        ...said("half"),
        { type: "tool-call-start", index: 0, delta: { message: { tool_calls: { id: "1" } } } },
      ],
      { content: "half", isDone: false, code: "provider_error" },
    ],
  ];
  test.each(cases)("%s", async (_name, events, { code, ...wanted }) => {
    const model = spare();
    for (const length of [1, 4_000]) {
      answer = () => inPieces(framed(events), () => length);
      const response = await stream(model);
      expect(response.status).toBe(200);
      const read = await readStream(response);
      expect(read).toMatchObject(wanted);
      expect(read.error?.error.code as string | undefined).toBe(code);
      expect((await billOfResponse(gateway, response)).completionTokens).toBePositive();
    }
  });

  test.each([
    ["what is no JSON", 'data: {"type": "content\n\n'],
    ["JSON that is not an object", "data: 5\n\n"],
    ["a truncated event", 'data: {"type": "message-end", "del'],
  ])("%s behind text is an error, and what came is charged", async (_name, garbage) => {
    const model = spare();
    for (const length of [3, 4_000]) {
      answer = () => inPieces(framed([start, ...said("half of it")]) + garbage, () => length);
      const response = await stream(model);
      const read = await readStream(response);
      expect(read).toMatchObject({ content: "half of it", isDone: false });
      expect(read.error!.error.code).toBe("provider_error");
      expect(await billOfResponse(gateway, response)).toMatchObject({ estimated: true });
    }
  });

  test("no answer at all has a status and costs nothing", async () => {
    const NO_ANSWERS: readonly (() => Response)[] = [
      () => inPieces("data: 5\n\n", () => 5),
      () => inPieces("", () => 5),
      () => inPieces(framed([start]), () => 50),
      () => new Response("<html>", { headers: { "content-type": "text/html" } }),
      () => Response.json({ message: "under 200" }),
      () => Response.json([]),
      () => Response.json({ message: {} }),
    ];
    for (const made of NO_ANSWERS) {
      const model = spare();
      for (const isStream of [false, true]) {
        answer = made;
        const response = await chat({ stream: isStream }, model);
        expect(response.status).toBe(502);
        const id = response.headers.get("x-gateway-request-id")!;
        const [row] =
          await gateway.sql`SELECT count(*)::int AS n FROM transactions WHERE request_id = ${id}`;
        expect(row!.n).toBe(0);
      }
    }
  });

  test("usage that lies is counted here, and usage beyond the hold is charged up to it", async () => {
    for (const usage of [null, 7, { billed_units: { input_tokens: -5, output_tokens: 1e300 } }]) {
      answer = () => Response.json({ ...MESSAGE, usage });
      expect((await billOfResponse(gateway, await chat())).estimated).toBeTrue();
      answer = () => inPieces(framed([start, ...said("hi"), end("COMPLETE", usage)]), () => 50);
      const streamed = await stream();
      await streamed.text();
      expect((await billOfResponse(gateway, streamed)).estimated).toBeTrue();
    }
    const usage = { billed_units: { input_tokens: 1e9, output_tokens: 1e9 } };
    answer = () => Response.json({ ...MESSAGE, usage });
    const { chargeNano } = await billOfResponse(gateway, await chat({ max_tokens: 10 }));
    expect(Number(chargeNano)).toBeLessThan(100 * PRICE.input * 1e3 + 10 * PRICE.output * 1e3);
  });
});

describe("errors of Cohere", () => {
  test.each([
    [400, "invalid request: temperature must be between 0 and 1.0 inclusive.", 400, null],
    [400, "too many tokens: size limit exceeded by 11326 tokens.", 400, "context_length_exceeded"],
    [400, "too many tokens: max tokens must be less than or equal to 4096", 400, null],
    [401, "invalid api token", 502, "provider_error"],
    [402, "Please add or update your payment method", 502, "provider_error"],
    [404, "model 'xyz' not found", 502, "provider_error"],
    [422, "unprocessable", 400, null],
    [429, "Please wait and try again later", 429, "rate_limit_exceeded"],
    [498, "blocked input", 400, "content_policy_violation"],
    [500, "internal server error", 502, "provider_error"],
    [503, "unavailable", 502, "provider_error"],
  ])("%d %s is %d", async (status, message, wanted, code) => {
    answer = () =>
      Response.json(
        { id: "1", message: `${message} ${KEY}` },
        {
          status,
          headers: { "retry-after": "7" },
        },
      );
    const response = await chat({}, spare());
    expect(response.status).toBe(wanted);
    const text = await response.text();
    expect(text).not.toContain(KEY);
    if (code !== null) expect(JSON.parse(text)).toMatchObject({ error: { code } });
    if (wanted === 400 && code !== "content_policy_violation") expect(text).toContain(message);
    if (wanted === 429) expect(response.headers.get("retry-after")).toBe("7");
  });

  test("leave the key out of the log", () => {
    expect(gateway.logLines.join("")).not.toContain(KEY);
  });
});

describe("embeddings", () => {
  const embed = (body: Fields) => {
    asked = [];
    return gateway.request("POST", "/v1/embeddings", { model: "cohere/embed-v4.0", ...body });
  };
  const recorded = loadJsonFixture("vercel-ai/cohere/cohere-embedding.json") as {
    embeddings: { float: number[][] };
  };
  const [first, second] = recorded.embeddings.float as [number[], number[]];

  test("recorded ones come in numbers and in base64, and what Cohere bills is charged", async () => {
    answer = () => Response.json(recorded);
    const input = ["sunny day at the beach", "rainy day in the city"];
    const response = await embed({ input, input_type: "search_query", dimensions: 256 });
    expect(response.status).toBe(200);
    expect(asked[0]!.path).toBe("/v2/embed");
    expect(asked[0]!.body).toEqual({
      model: "embed-v4.0",
      texts: input,
      input_type: "search_query",
      embedding_types: ["float"],
      truncate: "NONE",
      output_dimension: 256,
    });
    const { data, usage } = (await response.json()) as {
      data: { embedding: number[] }[];
      usage: Fields;
    };
    expect(data.map(({ embedding }) => embedding)).toEqual([first, second]);
    expect(usage).toMatchObject({ prompt_tokens: 10, total_tokens: 10 });
    // 10 tokens at 0.12 USD for a million.
    expect((await billOfResponse(gateway, response)).chargeNano).toBe(1_200n);
    const base64 = await embed({ input, encoding_format: "base64" });
    const told = (await base64.json()) as { data: { embedding: string }[] };
    const bytes = Buffer.from(told.data[1]!.embedding, "base64");
    expect(second.map((_, at) => bytes.readFloatLE(at * 4))).toEqual(second.map(Math.fround));
  });

  test("go in batches of 96, which are billed together", async () => {
    answer = ({ body }) => {
      const { length } = body.texts as string[];
      const float = (body.texts as string[]).map((text) => [Number(text)]);
      return Response.json({
        embeddings: { float },
        meta: { billed_units: { input_tokens: length } },
      });
    };
    const input = Array.from({ length: 200 }, (_, at) => String(at));
    const response = await embed({ input });
    expect(asked.map(({ body }) => (body.texts as string[]).length)).toEqual([96, 96, 8]);
    expect(asked[0]!.body).toMatchObject({ input_type: "search_document" });
    const { data, usage } = (await response.json()) as {
      data: { embedding: number[] }[];
      usage: Fields;
    };
    expect(data.map(({ embedding }) => embedding[0])).toEqual(input.map(Number));
    expect(usage).toMatchObject({ prompt_tokens: 200 });
  });

  test("of lists of tokens are refused, and garbage is 502", async () => {
    expect((await embed({ input: [1, 2, 3] })).status).toBe(400);
    for (const body of [
      {},
      { embeddings: { float: [first] } },
      { embeddings: { float: [first, []] } },
      { embeddings: { float: [first, ["a"]] } },
    ]) {
      answer = () => Response.json(body);
      expect((await embed({ input: ["a", "b"] })).status).toBe(502);
    }
  });
});
