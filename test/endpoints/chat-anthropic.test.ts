import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { femtoFromUsd } from "../../src/lib/money.ts";
import { block, delta, end, said, start } from "../support/anthropic-events.ts";
import {
  expectedOf,
  framed,
  messageOfStream,
  recordedError,
  STREAMS,
  streamText,
  WHOLE,
  wholeMessage,
} from "../support/anthropic-recordings.ts";
import {
  ADAPTIVE,
  type AnthropicGateway,
  BUDGET,
  inPieces,
  startAnthropicGateway,
  UPSTREAM_KEY,
} from "../support/anthropic-upstream.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, type ReadStream, readStream } from "../support/stream-reader.ts";
import { randomPieceLength, seededRandom } from "../upstream/random.ts";

type Fields = Record<string, unknown>;

let anthropic: AnthropicGateway;
beforeAll(async () => {
  anthropic = await startAnthropicGateway();
});
afterAll(() => anthropic.stop());
afterEach(() => expectBooksClosed(anthropic.gateway));

const MESSAGES = [{ role: "user", content: "hello" }];
const chat = (body: Fields = {}) =>
  anthropic.chat({ model: ADAPTIVE, messages: MESSAGES, ...body });
const stream = (body: Fields = {}) =>
  chat({ stream: true, stream_options: { include_usage: true }, ...body });

/** Prices of ADAPTIVE in the catalogue, in USD for a token. */
const [INPUT, OUTPUT, READ, WRITE, WRITE_HOUR] = [5e-6, 25e-6, 5e-7, 6.25e-6, 1e-5].map((usd) =>
  femtoFromUsd(usd.toFixed(9)),
) as [bigint, bigint, bigint, bigint, bigint];

interface Tokens {
  readonly input: number;
  readonly output: number;
  readonly cached?: number;
  readonly written?: number;
  readonly writtenForHour?: number;
}

function chargeNano({
  input,
  output,
  cached = 0,
  written = 0,
  writtenForHour = 0,
}: Tokens): bigint {
  const femto =
    BigInt(input) * INPUT +
    BigInt(output) * OUTPUT +
    BigInt(cached) * READ +
    BigInt(written - writtenForHour) * WRITE +
    BigInt(writtenForHour) * WRITE_HOUR;
  return (femto + 500_000n) / 1_000_000n;
}

async function expectBill(response: Response, tokens: ReturnType<typeof expectedOf>["tokens"]) {
  const { input, cached, written, output, thinking } = tokens;
  expect(await billOfResponse(anthropic.gateway, response)).toMatchObject({
    promptTokens: input + cached + written,
    cachedPromptTokens: cached,
    completionTokens: output,
    reasoningTokens: thinking,
    estimated: false,
    chargeNano: chargeNano(tokens),
  });
}

const usageOf = ({
  input,
  cached,
  written,
  output,
  thinking,
}: ReturnType<typeof expectedOf>["tokens"]) => ({
  prompt_tokens: input + cached + written,
  completion_tokens: output,
  total_tokens: input + cached + written + output,
  completion_tokens_details: { reasoning_tokens: thinking },
});

/** The details of a stream put together, as clients do it. */
function joinedDetails({ chunks }: ReadStream): Fields[] {
  const joined: Fields[] = [];
  for (const chunk of chunks) {
    for (const detail of (chunk.choices[0]?.delta.reasoning_details ?? []) as Fields[]) {
      const known = joined.find(({ index }) => index === detail.index);
      if (known === undefined) joined.push({ ...detail });
      else {
        if (typeof detail.text === "string") known.text = `${known.text ?? ""}${detail.text}`;
        if (typeof detail.signature === "string") known.signature = detail.signature;
      }
    }
  }
  return joined;
}

describe("recorded streams, cut at random offsets", () => {
  test.each(STREAMS)("%s comes through whole and is billed right", async (name) => {
    const text = streamText(name);
    const expected = expectedOf(messageOfStream(text));
    for (const seed of [1, 20, 300]) {
      const random = seededRandom(seed);
      anthropic.answerWith(() => inPieces(text, () => randomPieceLength(random)));
      const response = await stream();
      expect(response.status).toBe(200);
      const read = await readStream(response);
      expectStreamShape(read, { model: ADAPTIVE, includesUsage: true });
      expect(read.content).toBe(expected.content);
      expect(read.reasoning).toBe(expected.reasoning);
      expect(joinedDetails(read)).toEqual(expected.details);
      expect(read.finishReason).toBe(expected.finish);
      expect(read.usage).toMatchObject(usageOf(expected.tokens));
      const calls = read.toolCalls.map(({ id, name, arguments: json }) => ({
        id,
        name,
        input: JSON.parse(json),
      }));
      expect(calls).toEqual(expected.calls);
      const refusals = read.chunks.map(({ choices }) => choices[0]?.delta.refusal ?? "").join("");
      expect(refusals).toBe(expected.refusal ?? "");
      await expectBill(response, expected.tokens);
    }
  });
});

describe("recorded messages", () => {
  const messages = [
    ...WHOLE.map((name) => [name, wholeMessage(name)] as const),
    ...STREAMS.map((name) => [name, messageOfStream(streamText(name))] as const),
  ];
  test.each(messages)("%s comes through whole and is billed right", async (_name, message) => {
    const expected = expectedOf(message);
    anthropic.answerWith(() => Response.json(message));
    const response = await chat();
    expect(response.status).toBe(200);
    const { choices, usage } = (await response.json()) as { choices: Fields[]; usage: Fields };
    const { calls, details } = expected;
    expect(choices).toEqual([
      {
        index: 0,
        logprobs: null,
        finish_reason: expected.finish,
        message: {
          role: "assistant",
          content: expected.content === "" ? null : expected.content,
          refusal: expected.refusal,
          ...(expected.reasoning !== "" && { reasoning: expected.reasoning }),
          ...(details.length > 0 && { reasoning_details: details }),
          ...(calls.length > 0 && {
            tool_calls: calls.map(({ id, name, input }) => ({
              id,
              type: "function",
              function: { name, arguments: JSON.stringify(input) },
            })),
          }),
        },
      },
    ]);
    expect(usage).toMatchObject(usageOf(expected.tokens));
    await expectBill(response, expected.tokens);
  });
});

const MESSAGE = {
  type: "message",
  role: "assistant",
  content: [{ type: "text", text: "hi" }],
  stop_reason: "end_turn",
  usage: { input_tokens: 40, output_tokens: 7 },
};

describe("the cache", () => {
  const usage = {
    input_tokens: 10,
    cache_read_input_tokens: 1_000,
    cache_creation_input_tokens: 300,
    cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 200 },
    output_tokens: 7,
  };
  const cache_control = { type: "ephemeral", ttl: "1h" };
  const messages = [
    { role: "user", content: [{ type: "text", text: "x".repeat(5_000), cache_control }] },
  ];

  test.each([true, false])(
    "tokens read, and written for five minutes and for an hour, have their prices (stream %s)",
    async (isStream) => {
      const { cache_creation: _, ...later } = usage;
      anthropic.answerWith(() =>
        isStream
          ? inPieces(
              framed([
                start({ ...usage, output_tokens: 1 }),
                ...said("hi"),
                ...end("end_turn", later),
              ]),
              () => 9,
            )
          : Response.json({ ...MESSAGE, usage }),
      );
      const response = await (isStream ? stream({ messages }) : chat({ messages }));
      const told = isStream
        ? (await readStream(response)).usage
        : ((await response.json()) as Fields).usage;
      expect(told).toMatchObject({
        prompt_tokens: 1_310,
        completion_tokens: 7,
        prompt_tokens_details: {
          cached_tokens: 1_000,
          cache_write_tokens: 300,
          cache_write_1h_tokens: 200,
        },
      });
      expect(await billOfResponse(anthropic.gateway, response)).toMatchObject({
        quantities: { cache_write_tokens: 300, cache_write_1h_tokens: 200 },
        chargeNano: chargeNano({
          input: 10,
          cached: 1_000,
          written: 300,
          writtenForHour: 200,
          output: 7,
        }),
      });
      const asked = anthropic.seen.at(-1)!.body.messages as { content: Fields[] }[];
      expect(asked[0]!.content[0]!.cache_control).toEqual(cache_control);
    },
  );

  test.each([
    ["5m", { ephemeral_5m_input_tokens: 300 }, { written: 300 }],
    ["1h", { ephemeral_1h_input_tokens: 300 }, { written: 300, writtenForHour: 300 }],
  ])("is asked for without breakpoints, and for %s has that price", async (ttl, byTime, tokens) => {
    const { cache_read_input_tokens: _, ...told } = { ...usage, cache_creation: byTime };
    anthropic.answerWith(() => Response.json({ ...MESSAGE, usage: told }));
    const content = "x".repeat(3_000);
    const response = await chat({
      messages: [{ role: "system", content }, ...MESSAGES],
      cache_control: { type: "ephemeral", ttl },
    });
    expect(response.headers.get("x-gateway-dropped-parameters")).toBeNull();
    await response.arrayBuffer();
    const { system, messages: sent } = anthropic.seen.at(-1)!.body as Record<string, Fields[]>;
    expect(system![0]!.cache_control).toEqual({ type: "ephemeral", ttl });
    expect((sent![0]!.content as Fields[])[0]!.cache_control).toEqual({ type: "ephemeral", ttl });
    expect(await billOfResponse(anthropic.gateway, response)).toMatchObject({
      chargeNano: chargeNano({ input: 10, output: 7, ...tokens }),
    });
  });
});

describe("citations", () => {
  const passage = { document_index: 0, document_title: "a.txt", cited_text: "The sky is blue." };
  const ofFile = {
    type: "char_location",
    ...passage,
    start_char_index: 0,
    end_char_index: 16,
    file_id: null,
  };
  const ofWeb = {
    type: "web_search_result_location",
    url: "https://example.com/sky",
    title: "Sky",
    cited_text: "blue",
    encrypted_index: "Eo8B",
  };
  const odd = { type: "of_next_year" };
  const annotations = [
    {
      type: "file_citation",
      file_citation: {
        filename: "a.txt",
        document_index: 0,
        start_char_index: 0,
        end_char_index: 16,
        content: "The sky is blue.",
        start_index: 3,
        end_index: 10,
      },
    },
    {
      type: "url_citation",
      url_citation: {
        url: "https://example.com/sky",
        title: "Sky",
        content: "blue",
        start_index: 3,
        end_index: 10,
      },
    },
  ];
  const file = { file_data: `data:text/plain;base64,${btoa("The sky is blue.")}` };
  const messages = [
    { role: "user", content: [{ type: "file", file, citations: { enabled: true } }] },
  ];

  test("of a document are asked for, and become annotations with their place in the text", async () => {
    const content = [
      { type: "text", text: "\u{1f44b} " },
      { type: "text", text: "It is b", citations: [ofFile, odd, ofWeb, null] },
    ];
    anthropic.answerWith(() => Response.json({ ...MESSAGE, content }));
    const { choices } = (await (await chat({ messages })).json()) as { choices: Fields[] };
    expect(choices[0]!.message).toMatchObject({ content: "\u{1f44b} It is b", annotations });
    const asked = anthropic.seen.at(-1)!.body.messages as { content: Fields[] }[];
    expect(asked[0]!.content[0]).toMatchObject({ type: "document", citations: { enabled: true } });
  });

  test("come in a stream with the end of their passage", async () => {
    const cited = (citation: unknown) => delta(1, { type: "citations_delta", citation });
    anthropic.answerWith(() =>
      inPieces(
        framed([
          start(),
          ...said("\u{1f44b} "),
          block(1, { type: "text", text: "", citations: [] }),
          cited(ofFile),
          delta(1, { type: "text_delta", text: "It is " }),
          cited(odd),
          cited(ofWeb),
          delta(1, { type: "text_delta", text: "b" }),
          { type: "content_block_stop", index: 1 },
          ...end("end_turn"),
        ]),
        () => 30,
      ),
    );
    const { chunks, content } = await readStream(await stream({ messages }));
    expect(content).toBe("\u{1f44b} It is b");
    const told = chunks.flatMap(({ choices }) => choices[0]?.delta.annotations ?? []);
    expect(told).toEqual(annotations);
  });
});

test("thinking between calls of tools is asked for by its beta", async () => {
  anthropic.answerWith(() => Response.json(MESSAGE));
  const tools = [{ type: "function", function: { name: "look" } }];
  const asked = { reasoning_effort: "low", max_tokens: 3_000, interleaved_thinking: true };
  await (await chat({ model: BUDGET, tools, ...asked })).arrayBuffer();
  expect(anthropic.seen.at(-1)!.headers.get("anthropic-beta")).toBe(
    "interleaved-thinking-2025-05-14",
  );
  expect(anthropic.seen.at(-1)!.body.interleaved_thinking).toBeUndefined();
  const response = await chat({ model: BUDGET, interleaved_thinking: true });
  expect(response.headers.get("x-gateway-dropped-parameters")).toBe("interleaved_thinking");
  expect(anthropic.seen.at(-1)!.headers.get("anthropic-beta")).toBeNull();
});

describe("an answer in JSON", () => {
  const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
  const response_format = { type: "json_schema", json_schema: { name: "n", schema } };

  test.each([true, false])(
    "comes as content where it came as the input of a tool (stream %s)",
    async (isStream) => {
      const call = { type: "tool_use", id: "toolu_1", name: "answer_in_json", input: {} };
      anthropic.answerWith(() =>
        isStream
          ? inPieces(
              framed([
                start(),
                block(0, call),
                delta(0, { type: "input_json_delta", partial_json: '{"n"' }),
                delta(0, { type: "input_json_delta", partial_json: ": 5}" }),
                { type: "content_block_stop", index: 0 },
                ...end("tool_use"),
              ]),
            )
          : Response.json({
              ...MESSAGE,
              content: [{ ...call, input: { n: 5 } }],
              stop_reason: "tool_use",
            }),
      );
      const body = { response_format: { type: "json_object" } };
      const response = await (isStream ? stream(body) : chat(body));
      expect(response.status).toBe(200);
      if (isStream) {
        const read = await readStream(response);
        expect(read).toMatchObject({ content: '{"n": 5}', finishReason: "stop", toolCalls: [] });
      } else {
        const { choices } = (await response.json()) as { choices: Fields[] };
        expect(choices).toMatchObject([{ message: { content: '{"n":5}' }, finish_reason: "stop" }]);
      }
      expect(anthropic.seen.at(-1)!.body.tool_choice).toEqual({
        type: "tool",
        name: "answer_in_json",
        disable_parallel_tool_use: true,
      });
    },
  );

  test("is held to its schema by the model", async () => {
    anthropic.answerWith(() =>
      Response.json({ ...MESSAGE, content: [{ type: "text", text: '{"n":5}' }] }),
    );
    expect((await chat({ response_format })).status).toBe(200);
    expect(anthropic.seen.at(-1)!.body.output_config).toEqual({
      format: { type: "json_schema", schema: { ...schema, additionalProperties: false } },
    });
  });
});

describe("stop reasons", () => {
  test.each([
    ["end_turn", "stop"],
    ["stop_sequence", "stop"],
    ["pause_turn", "stop"],
    ["max_tokens", "length"],
    ["model_context_window_exceeded", "length"],
    ["refusal", "content_filter"],
    ["unheard_of", "stop"],
    // There is no call.
    ["tool_use", "stop"],
  ])("%s is %s", async (reason, finish) => {
    anthropic.answerWith(() =>
      inPieces(framed([start(), ...said("hi"), ...end(reason)]), () => 50),
    );
    expect((await readStream(await stream())).finishReason).toBe(finish);
    anthropic.answerWith(() => Response.json({ ...MESSAGE, stop_reason: reason }));
    const { choices } = (await (await chat()).json()) as { choices: Fields[] };
    expect(choices[0]!.finish_reason).toBe(finish);
  });
});

describe("streams that go wrong", () => {
  const cases: [name: string, events: object[], wanted: Partial<ReadStream> & { code?: string }][] =
    [
      [
        "unknown events, blocks and deltas are passed over",
        [
          { type: "unheard_of", index: 0 },
          start(),
          block(0, { type: "hologram", hologram: "x" }),
          delta(0, { type: "hologram_delta", hologram: "x" }),
          delta(0, { type: "input_json_delta", partial_json: '{"of": "no call"}' }),
          { type: "content_block_stop", index: 0 },
          { type: "ping" },
          ...said("hi"),
          ...end("end_turn"),
        ],
        { content: "hi", finishReason: "stop", isDone: true, toolCalls: [] },
      ],
      [
        "a stop without content is an empty answer",
        [start(), ...end("end_turn")],
        { content: "", finishReason: "stop", isDone: true },
      ],
      [
        "a message_stop without a reason is an error",
        [start(), ...said("half"), { type: "message_stop" }],
        { content: "half", isDone: false, code: "provider_error" },
      ],
      [
        "an end without a reason is an error",
        [start(), ...said("half")],
        { content: "half", isDone: false, code: "provider_error" },
      ],
      [
        "a reason without message_stop is the end",
        [start(), ...said("hi"), end("end_turn")[0]!],
        { content: "hi", isDone: true, finishReason: "stop" },
      ],
      [
        "a second message_start is an error",
        [start(), ...said("half"), start(), ...said("another"), ...end("end_turn")],
        { content: "half", isDone: false, code: "provider_error" },
      ],
      [
        "an error event in mid-stream is sent in the stream",
        [
          start(),
          ...said("half"),
          { type: "error", error: { type: "overloaded_error", message: "Overloaded" } },
        ],
        { content: "half", isDone: false, code: "provider_error" },
      ],
      [
        "a rate limit in mid-stream keeps its code",
        [
          start(),
          ...said("half"),
          { type: "error", error: { type: "rate_limit_error", message: "slow" } },
        ],
        { content: "half", isDone: false, code: "rate_limit_exceeded" },
      ],
      [
        "tool input that is no JSON is handed on as it came",
        [
          start(),
          block(0, { type: "tool_use", id: "toolu_1", name: "look", input: {} }),
          delta(0, { type: "input_json_delta", partial_json: '{"at": sky' }),
          { type: "content_block_stop", index: 0 },
          ...end("tool_use"),
        ],
        {
          isDone: true,
          finishReason: "tool_calls",
          toolCalls: [{ index: 0, id: "toolu_1", name: "look", arguments: '{"at": sky' }],
        },
      ],
      [
        "input that comes whole with its block is a call's",
        [
          start(),
          block(0, { type: "tool_use", id: "toolu_1", name: "look", input: { at: "sky" } }),
          { type: "content_block_stop", index: 0 },
          ...end("tool_use"),
        ],
        { toolCalls: [{ index: 0, id: "toolu_1", name: "look", arguments: '{"at":"sky"}' }] },
      ],
      [
        "calls that end as text does are calls",
        [
          start(),
          block(0, { type: "tool_use", id: "toolu_1", name: "look", input: {} }),
          { type: "content_block_stop", index: 0 },
          ...end("end_turn"),
        ],
        {
          finishReason: "tool_calls",
          toolCalls: [{ index: 0, id: "toolu_1", name: "look", arguments: "{}" }],
        },
      ],
      [
        "what follows the end is not read",
        [start(), ...said("hi"), ...end("end_turn"), ...said("more"), { type: "error" }],
        { content: "hi", isDone: true, finishReason: "stop" },
      ],
      [
        "deltas without the beginning of their block are read",
        [
          start(),
          delta(5, { type: "text_delta", text: "h" }),
          delta(5, { type: "text_delta", text: "i" }),
          { type: "content_block_stop", index: 7 },
          ...end("end_turn"),
        ],
        { content: "hi", isDone: true, finishReason: "stop" },
      ],
      [
        "a call without a name is an error",
        [start(), ...said("half"), block(1, { type: "tool_use", id: "toolu_1" })],
        { content: "half", isDone: false, code: "provider_error" },
      ],
    ];
  test.each(cases)("%s", async (_name, events, { code, ...wanted }) => {
    for (const length of [1, 40, 4_000]) {
      anthropic.answerWith(() => inPieces(framed(events), () => length));
      const response = await stream();
      expect(response.status).toBe(200);
      const read = await readStream(response);
      expect(read).toMatchObject(wanted);
      expect(read.error?.error.code as string | undefined).toBe(code);
      expect((await billOfResponse(anthropic.gateway, response)).promptTokens).toBe(40);
    }
  });

  test.each([
    ["what is no JSON", 'data: {"type": "content\n\n'],
    ["JSON that is not an object", "data: 5\n\n"],
    ["a truncated event", 'data: {"type": "content_block_delta", "ind'],
  ])("%s behind text is an error, and what came is charged", async (_name, garbage) => {
    const text = framed([start(), ...said("half of it")]) + garbage;
    for (const length of [3, 4_000]) {
      anthropic.answerWith(() => inPieces(text, () => length));
      const response = await stream();
      const read = await readStream(response);
      expect(read).toMatchObject({ content: "half of it", isDone: false });
      expect(read.error!.error.code).toBe("provider_error");
      const bill = await billOfResponse(anthropic.gateway, response);
      expect(bill).toMatchObject({ promptTokens: 40, estimated: true });
      expect(bill.completionTokens).toBe(1);
    }
  });

  const told = (type: string) => framed([{ type: "error", error: { type, message: "no" } }]);
  test.each([
    ["what is no event", "data: 5\n\n", 502],
    ["what is no stream", "<html>busy</html>", 502],
    ["nothing", "", 502],
    ["a beginning alone", framed([start()]), 502],
    ["a limit", told("rate_limit_error"), 429],
    ["a request that is refused", told("invalid_request_error"), 400],
    ["an overload", told("overloaded_error"), 502],
    ["an error of no known type", told("error_of_next_year"), 502],
  ])("%s before anything was said has a status", async (_name, text, status) => {
    anthropic.answerWith(() => inPieces(text, () => 5));
    const response = await stream();
    expect(response.status).toBe(status);
    await response.arrayBuffer();
  });

  test.each<[string, Fields]>([
    ["no content", { content: undefined }],
    ["content that is text", { content: "hi" }],
    ["a call without a name", { content: [{ type: "tool_use", id: "toolu_1" }] }],
    ["an error's type", { type: "error", error: { type: "api_error", message: "no" } }],
  ])("a whole message with %s is 502 and costs nothing", async (_name, members) => {
    anthropic.answerWith(() => Response.json({ ...MESSAGE, ...members }));
    const response = await chat();
    expect(response.status).toBe(502);
    const id = response.headers.get("x-gateway-request-id")!;
    const { sql } = anthropic.gateway;
    const [row] = await sql`SELECT count(*)::int AS n FROM transactions WHERE request_id = ${id}`;
    expect(row!.n).toBe(0);
  });
});

describe("usage that lies", () => {
  test.each([
    ["negative", { input_tokens: -5, output_tokens: -1 }],
    ["fractional", { input_tokens: 1.5, output_tokens: 2.5 }],
    ["beyond integers", { input_tokens: 1e300, output_tokens: 2 ** 60 }],
    ["no numbers", { input_tokens: "40", output_tokens: null }],
    ["all zero", { input_tokens: 0, output_tokens: 0 }],
    ["no usage", null],
  ])("%s is counted here", async (_name, usage) => {
    anthropic.answerWith(() => Response.json({ ...MESSAGE, usage }));
    const whole = await chat();
    expect(await billOfResponse(anthropic.gateway, whole)).toMatchObject({ estimated: true });
    const events = [start(usage), ...said("hi"), ...end("end_turn", usage)];
    anthropic.answerWith(() => inPieces(framed(events), () => 30));
    const streamed = await stream();
    expect((await readStream(streamed)).isDone).toBeTrue();
    const bill = await billOfResponse(anthropic.gateway, streamed);
    expect(bill.estimated).toBeTrue();
    expect(bill.completionTokens).toBePositive();
  });

  test("counts that shrink are those of the last report, and beyond the hold are charged up to it", async () => {
    const last = { input_tokens: 30, output_tokens: 5 };
    const events = [
      start({ input_tokens: 400, output_tokens: 1 }),
      ...said("hi"),
      { type: "message_delta", delta: {}, usage: { output_tokens: 900 } },
      ...end("end_turn", last),
    ];
    anthropic.answerWith(() => inPieces(framed(events), () => 30));
    const shrunk = await stream();
    await shrunk.arrayBuffer();
    expect(await billOfResponse(anthropic.gateway, shrunk)).toMatchObject({
      promptTokens: 30,
      completionTokens: 5,
      estimated: false,
    });
    const usage = { input_tokens: 1e9, output_tokens: 1e9 };
    anthropic.answerWith(() => Response.json({ ...MESSAGE, usage }));
    const enormous = await chat({ max_tokens: 10 });
    await enormous.arrayBuffer();
    const bill = await billOfResponse(anthropic.gateway, enormous);
    expect(bill.chargeNano).toBeLessThan(chargeNano({ input: 1_000, output: 10 }));
  });

  test("a prompt that the end counts as zero is the one that the beginning counted", async () => {
    const events = [
      start(),
      ...said("hi"),
      ...end("end_turn", { input_tokens: 0, output_tokens: 9 }),
    ];
    anthropic.answerWith(() => inPieces(framed(events), () => 30));
    const response = await stream();
    await response.arrayBuffer();
    expect(await billOfResponse(anthropic.gateway, response)).toMatchObject({
      promptTokens: 40,
      completionTokens: 9,
      estimated: false,
    });
  });
});

describe("what the wire has not", () => {
  const SOUND = { type: "input_audio", input_audio: { data: "AA==", format: "wav" } };

  test.each([0, 300_000])(
    "leaves its models out for the next one, with %d characters more",
    async (padding) => {
      const before = anthropic.seen.length;
      const content = [{ type: "text", text: "x".repeat(padding) || "listen" }, SOUND];
      const response = await chat({
        models: [ADAPTIVE, "sandbox/chat"],
        max_tokens: 20,
        messages: [{ role: "user", content }],
        route_explain: true,
      });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-route-explain")).toContain(
        "skipped: anthropic/claude-opus-5=lacks_audio",
      );
      expect(anthropic.seen).toHaveLength(before);
    },
  );

  test("is left out and listed where it is a hint", async () => {
    anthropic.answerWith(() => Response.json(MESSAGE));
    const response = await chat({
      seed: 5,
      temperature: 0.5,
      user: "someone",
      logit_bias: { 5: 1 },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe(
      "seed, temperature, logit_bias",
    );
    expect(anthropic.seen.at(-1)!.body).toEqual({
      model: "claude-opus-5",
      max_tokens: 128_000,
      messages: [{ role: "user", content: [{ type: "text", text: "hello" }] }],
      metadata: { user_id: "someone" },
    });
  });

  test.each<[string, string, Fields]>([
    ["unsupported_parameter", "n", { n: 2 }],
    ["unsupported_parameter", "logprobs", { logprobs: true }],
    ["unsupported_parameter", "stop", { stop: ["\n"] }],
    [
      "unsupported_parameter",
      "messages.0.content.0",
      { messages: [{ role: "user", content: [SOUND] }] },
    ],
  ])("%s names %s", async (code, param, body) => {
    const before = anthropic.seen.length;
    const response = await chat(body);
    expect(response.status).toBe(400);
    expect(((await response.json()) as { error: Fields }).error).toMatchObject({ code, param });
    expect(anthropic.seen).toHaveLength(before);
  });

  test("a body too long for the event loop is the same to the provider", async () => {
    const asked: Fields[] = [];
    for (const padding of [0, 400_000]) {
      anthropic.answerWith(({ body }) => {
        asked.push(body);
        return Response.json(MESSAGE);
      });
      const tools = [
        { type: "function", function: { name: "look", description: "x".repeat(padding) } },
      ];
      const messages = [{ role: "system", content: "Be brief." }, ...MESSAGES];
      const response = await chat({ messages, tools, reasoning_effort: "low", max_tokens: 3_000 });
      expect(response.status).toBe(200);
      await response.arrayBuffer();
    }
    for (const body of asked) (body.tools as Fields[])[0]!.description = "";
    expect(asked[1]).toEqual(asked[0]!);
    expect(asked[1]!.output_config).toEqual({ effort: "low" });
  });
});

describe("a failure before the answer", () => {
  const failed =
    (status: number, type: string, message: string, headers: Record<string, string> = {}) =>
    () =>
      Response.json(
        { type: "error", error: { type, message }, request_id: "req_1" },
        { status, headers },
      );

  test.each([
    [400, "invalid_request_error", "messages: too odd", 400, "provider_rejected"],
    [
      400,
      "invalid_request_error",
      "prompt is too long: 208310 tokens > 200000 maximum",
      400,
      "context_length_exceeded",
    ],
    [413, "request_too_large", "Request exceeds the maximum size", 400, "context_length_exceeded"],
    [
      400,
      "invalid_request_error",
      "Your credit balance is too low to access the Anthropic API.",
      502,
      "provider_error",
    ],
    [
      400,
      "invalid_request_error",
      "Output blocked by content filtering policy",
      400,
      "content_policy_violation",
    ],
    [401, "authentication_error", "invalid x-api-key", 502, "provider_error"],
    [403, "permission_error", "not allowed", 502, "provider_error"],
    [404, "not_found_error", "model: claude-sonet-4-5", 502, "provider_error"],
    [500, "api_error", "Internal server error", 502, "provider_error"],
    [529, "overloaded_error", "Overloaded", 502, "provider_error"],
  ])("%i %s (%s) is %i", async (status, type, message, wanted, code) => {
    for (const isStream of [false, true]) {
      anthropic.answerWith(failed(status, type, message));
      const response = await chat({ stream: isStream });
      expect(response.status).toBe(wanted);
      const { error } = (await response.json()) as { error: Fields };
      expect(error.code).toBe(code);
    }
  });

  test("429 has the provider's Retry-After", async () => {
    anthropic.answerWith(failed(429, "rate_limit_error", "slow down", { "retry-after": "17" }));
    const response = await chat({ model: BUDGET });
    expect(response.status).toBe(429);
    expect(Number(response.headers.get("retry-after"))).toBeWithin(16, 18);
    await response.arrayBuffer();
  });

  test("the recorded error of an unknown model is 502, for the mapping is the operator's", async () => {
    const { status, body } = recordedError(
      "pydantic-ai/errors/test_model_name_suggestion_anthropic_.yaml",
    );
    expect(status).toBe(404);
    anthropic.answerWith(() => Response.json(body as Fields, { status }));
    expect((await chat()).status).toBe(502);
  });

  test("the key is in no answer, no header and no log line, whatever quotes it", async () => {
    anthropic.answerWith(failed(400, "invalid_request_error", `x-api-key ${UPSTREAM_KEY} is odd`));
    const response = await chat();
    const text = await response.text();
    expect(text).toContain("[redacted]");
    const events = [
      start(),
      ...said("half"),
      { type: "error", error: { type: "invalid_request_error", message: `with ${UPSTREAM_KEY}` } },
    ];
    anthropic.answerWith(() => inPieces(framed(events), () => 100));
    const streamed = await (await stream()).text();
    const headers = JSON.stringify([...response.headers]);
    for (const place of [text, streamed, headers, anthropic.gateway.logLines.join("")]) {
      expect(place).not.toContain(UPSTREAM_KEY);
    }
    const { headers: sent } = anthropic.seen.at(-1)!;
    expect(sent.get("x-api-key")).toBe(UPSTREAM_KEY);
    expect(sent.get("anthropic-version")).toBe("2023-06-01");
    expect(sent.get("authorization")).toBeNull();
  });
});
