import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { messageOfStream, STREAMS, streamText } from "../support/anthropic-recordings.ts";
import { chunk, events, exception } from "../support/aws-event-stream.ts";
import {
  ACCESS_KEY_ID,
  type BedrockGateway,
  eventStream,
  SECRET,
  SESSION_TOKEN,
  startBedrockGateway,
} from "../support/bedrock-upstream.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import { type BedrockRecording, bedrockRecordings } from "../upstream/bedrock-recordings.ts";
import { randomPieceLength, seededRandom } from "../upstream/random.ts";

/** Bedrock's wires through the whole gateway, over https, each request signed. */

type Fields = Record<string, unknown>;

const NOVA = "amazon/nova-lite-v1";
const LLAMA = "meta-llama/llama-3.3-70b-instruct";
const CLAUDE = "bedrock/global.anthropic.claude-opus-5";
const SPARES = 20;
const ARN = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3d4e5f6";
const ARN_MODEL = "anthropic/claude-of-our-profile";

let bedrock: BedrockGateway;
beforeAll(async () => {
  const terms = {
    context_length: 100_000,
    max_output_tokens: 5_000,
    input_cost_per_token: 1e-6,
    output_cost_per_token: 2e-6,
  };
  bedrock = await startBedrockGateway([
    { id: ARN_MODEL, ...terms, endpoints: [{ provider: "bedrock", model: ARN }] },
    {
      id: "test/two",
      ...terms,
      endpoints: ["first", "second"].map((name) => ({
        provider: "bedrock",
        model: `qwen.${name}`,
      })),
    },
    // The health of one test's endpoint decides nothing in another.
    ...Array.from({ length: SPARES }, (_, at) => ({
      id: `test/spare-${at}`,
      ...terms,
      endpoints: [{ provider: "bedrock", model: `qwen.spare-${at}` }],
    })),
  ]);
});
afterAll(() => bedrock.stop());
afterEach(() => expectBooksClosed(bedrock.gateway));

let spares = 0;
const spare = () => `test/spare-${spares++}`;
const STREAMED = { stream: true, stream_options: { include_usage: true } };
const whole = (bytes: Uint8Array<ArrayBuffer>) =>
  new Response(bytes, { headers: { "content-type": "application/json" } });

/** USD for a million tokens, in nanodollars for these tokens. */
function nano(
  tokens: { input: number; output: number },
  prices: { input: number; output: number },
) {
  return BigInt(Math.round((tokens.input * prices.input + tokens.output * prices.output) * 1_000));
}

describe("Converse", () => {
  const finishes: Fields = { end_turn: "stop", tool_use: "tool_calls" };

  test.each(bedrockRecordings())("$name comes through whole and is billed right", async (one) => {
    for (const seed of one.stream ? [1, 20, 300] : [1]) await replay(one, seed);
  });

  async function replay({ stream, bytes, expected }: BedrockRecording, seed: number) {
    const random = seededRandom(seed);
    const sent = Uint8Array.from(bytes);
    bedrock.answerWith(() =>
      stream ? eventStream(sent, () => randomPieceLength(random)) : whole(sent),
    );
    const response = await bedrock.chat(NOVA, stream ? STREAMED : {});
    expect(response.status).toBe(200);
    const asked = bedrock.seen.at(-1)!;
    expect(asked.fault).toBeUndefined();
    const operation = stream ? "converse-stream" : "converse";
    expect(asked.path).toBe(`/model/eu.amazon.nova-lite-v1%3A0/${operation}`);
    const read = stream ? await readStreamed(response) : await readWhole(response);
    const { content, reasoning, signature, calls, inputTokens, outputTokens } = expected;
    expect(read).toMatchObject({ content, reasoning, signature, calls });
    expect(read.finish).toBe(finishes[expected.stopReason]);
    expect(read.usage).toMatchObject({
      prompt_tokens: inputTokens,
      completion_tokens: outputTokens,
    });
    const tokens = { input: inputTokens, output: outputTokens };
    expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
      provider: "bedrock",
      promptTokens: inputTokens,
      completionTokens: outputTokens,
      estimated: false,
      chargeNano: nano(tokens, { input: 0.06, output: 0.24 }),
    });
  }

  async function readStreamed(response: Response) {
    const read = await readStream(response);
    expectStreamShape(read, { model: NOVA, includesUsage: true });
    const details = read.chunks.flatMap(
      ({ choices }) => (choices[0]?.delta.reasoning_details ?? []) as Fields[],
    );
    return {
      content: read.content,
      reasoning: read.reasoning,
      signature: details.find((one) => one.signature !== undefined)?.signature,
      calls: read.toolCalls.map(({ id, name, arguments: text }) => ({
        id,
        name,
        input: JSON.parse(text),
      })),
      finish: read.finishReason as unknown,
      usage: read.usage,
    };
  }

  async function readWhole(response: Response) {
    const { choices, usage } = (await response.json()) as { choices: Fields[]; usage: Fields };
    const message = choices[0]!.message as Fields;
    const details = (message.reasoning_details ?? []) as Fields[];
    const calls = (message.tool_calls ?? []) as { id: string; function: Record<string, string> }[];
    return {
      content: message.content ?? "",
      reasoning: message.reasoning ?? "",
      signature: details.find((one) => one.signature !== undefined)?.signature,
      calls: calls.map(({ id, function: { name, arguments: text } }) => ({
        id,
        name,
        input: JSON.parse(text!),
      })),
      finish: choices[0]!.finish_reason,
      usage,
    };
  }

  test("long requests are made in the work thread, and signed as they are", async () => {
    const text = "ä long text. ".repeat(30_000);
    for (const model of [NOVA, CLAUDE]) {
      bedrock.answerWith(() => new Response("{}", { status: 500 }));
      await bedrock.chat(model, { messages: [{ role: "user", content: text }] });
      const { body, fault } = bedrock.seen.at(-1)!;
      expect(fault).toBeUndefined();
      const [message] = body.messages as { content: { text: string }[] }[];
      expect(message!.content[0]!.text).toBe(text);
    }
  });

  test("long answers are read in the work thread", async () => {
    const text = "ä long answer. ".repeat(30_000);
    const usage = { inputTokens: 3, outputTokens: 4_000, totalTokens: 4_003 };
    const output = { message: { role: "assistant", content: [{ text }] } };
    bedrock.answerWith(() => Response.json({ output, stopReason: "end_turn", usage }));
    const response = await bedrock.chat(spare());
    const { choices } = (await response.json()) as { choices: { message: Fields }[] };
    expect(choices[0]!.message.content).toBe(text);
    expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
      completionTokens: 4_000,
      chargeNano: nano({ input: 3, output: 4_000 }, { input: 1, output: 2 }),
    });
  });

  test("a model that cannot stream is served as a stream of its whole answer", async () => {
    const usage = { inputTokens: 30, outputTokens: 9, totalTokens: 39 };
    const toolUse = { toolUseId: "t1", name: "look", input: { at: "sky" } };
    const output = { message: { role: "assistant", content: [{ text: "I look." }, { toolUse }] } };
    bedrock.answerWith(() => Response.json({ output, stopReason: "tool_use", usage }));
    const tools = [{ type: "function", function: { name: "look" } }];
    const response = await bedrock.chat(LLAMA, { ...STREAMED, tools });
    expect(bedrock.seen.at(-1)!.path).toEndWith("meta.llama3-3-70b-instruct-v1%3A0/converse");
    const read = await readStream(response);
    expect(read).toMatchObject({ content: "I look.", finishReason: "tool_calls", isDone: true });
    expect(read.toolCalls).toMatchObject([{ id: "t1", name: "look", arguments: '{"at":"sky"}' }]);
    expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
      chargeNano: nano({ input: 30, output: 9 }, { input: 0.72, output: 0.72 }),
    });
  });

  test("tokens of the cache are charged at their prices", async () => {
    const usage = {
      inputTokens: 10,
      outputTokens: 5,
      totalTokens: 1_115,
      cacheReadInputTokens: 1_000,
      cacheWriteInputTokens: 100,
    };
    const output = { message: { role: "assistant", content: [{ text: "Yes." }] } };
    bedrock.answerWith(() => Response.json({ output, stopReason: "end_turn", usage }));
    const response = await bedrock.chat(NOVA);
    expect(((await response.json()) as Fields).usage).toMatchObject({
      prompt_tokens: 1_110,
      prompt_tokens_details: { cached_tokens: 1_000, cache_write_tokens: 100 },
    });
    // Writing costs as much as the prompt does, for want of a price of its own.
    const chargeNano = BigInt(Math.round((110 * 0.06 + 1_000 * 0.015 + 5 * 0.24) * 1_000));
    expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({ chargeNano });
  });
});

describe("Anthropic's models", () => {
  const framed = (text: string) =>
    text
      .split("\n\n")
      .map((frame) => frame.split("\n").find((line) => line.startsWith("data:")))
      .filter((line) => line !== undefined)
      .map((line) => chunk(line.slice(5).trim()));

  test.each(STREAMS)("%s comes through in Bedrock's framing", async (name) => {
    const text = streamText(name);
    const { content, usage } = messageOfStream(text);
    const bytes = Buffer.concat(framed(text));
    for (const seed of [4, 50]) {
      const random = seededRandom(seed);
      bedrock.answerWith(() => eventStream(bytes, () => randomPieceLength(random)));
      const response = await bedrock.chat(CLAUDE, STREAMED);
      const asked = bedrock.seen.at(-1)!;
      expect(asked.fault).toBeUndefined();
      expect(asked.path).toBe("/model/global.anthropic.claude-opus-5/invoke-with-response-stream");
      const read = await readStream(response);
      expect(read.error).toBeUndefined();
      const said = (content as Fields[]).map(({ text: one }) => one ?? "").join("");
      expect(read.content).toBe(said);
      const input = usage.input_tokens as number;
      const output = usage.output_tokens as number;
      expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
        promptTokens: input,
        completionTokens: output,
        estimated: false,
        chargeNano: nano({ input, output }, { input: 5, output: 25 }),
      });
    }
  });

  test("a whole message is asked for in Anthropic's words, with the version in the body", async () => {
    bedrock.answerWith(() =>
      Response.json({
        type: "message",
        role: "assistant",
        content: [{ type: "text", text: "Hello." }],
        stop_reason: "end_turn",
        usage: { input_tokens: 7, output_tokens: 3 },
      }),
    );
    const response = await bedrock.chat(CLAUDE);
    expect(response.status).toBe(200);
    const { path, body, fault } = bedrock.seen.at(-1)!;
    expect(fault).toBeUndefined();
    expect(path).toBe("/model/global.anthropic.claude-opus-5/invoke");
    expect(body).toEqual({
      anthropic_version: "bedrock-2023-05-31",
      max_tokens: 128_000,
      messages: [{ role: "user", content: [{ type: "text", text: "hello" }] }],
    });
    expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
      chargeNano: nano({ input: 7, output: 3 }, { input: 5, output: 25 }),
    });
  });

  test("betas stand in the body", async () => {
    bedrock.answerWith(() => new Response("{}", { status: 500 }));
    const tool = { type: "function", function: { name: "look" } };
    await bedrock.chat("bedrock/global.anthropic.claude-sonnet-4-5-20250929-v1:0", {
      tools: [tool],
      interleaved_thinking: true,
      reasoning: { max_tokens: 2_000 },
    });
    const { body, headers } = bedrock.seen.at(-1)!;
    expect(body).toMatchObject({
      anthropic_version: "bedrock-2023-05-31",
      anthropic_beta: ["interleaved-thinking-2025-05-14"],
      thinking: { type: "enabled", budget_tokens: 2_000 },
    });
    expect(headers.has("anthropic-beta")).toBeFalse();
  });

  test("an ARN is called in Anthropic's wire where the catalogue knows whose model it is", async () => {
    bedrock.answerWith(() => new Response("{}", { status: 500 }));
    await bedrock.chat(ARN_MODEL);
    const { path, body, fault } = bedrock.seen.at(-1)!;
    expect(fault).toBeUndefined();
    expect(path).toBe(`/model/${encodeURIComponent(ARN)}/invoke`);
    expect(body).toMatchObject({ anthropic_version: "bedrock-2023-05-31", max_tokens: 5_000 });
  });

  test("an exception in mid-stream is an error in the stream, and what came is billed", async () => {
    const start = {
      type: "message_start",
      message: { usage: { input_tokens: 7, output_tokens: 1 } },
    };
    const delta = {
      type: "content_block_delta",
      index: 0,
      delta: { type: "text_delta", text: "The beginning" },
    };
    const bytes = Buffer.concat([
      chunk(start),
      chunk(delta),
      exception("modelStreamErrorException", "The model failed."),
    ]);
    bedrock.answerWith(() => eventStream(bytes, () => bytes.length));
    const response = await bedrock.chat(CLAUDE, STREAMED);
    const read = await readStream(response);
    expect(read.content).toBe("The beginning");
    expect(read.error?.error.code).toBe("provider_error");
    expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({ promptTokens: 7 });
  });
});

describe("a key of an organization's own", () => {
  const add = (key: string) =>
    bedrock.gateway.request(
      "POST",
      "/v1/provider_keys",
      { provider: "bedrock", key },
      { key: bedrock.gateway.managementKey },
    );

  test("is an access key in one piece, which signs the check and calls", async () => {
    bedrock.answerWith(({ fault, body }) => {
      const type = fault === undefined ? "ValidationException" : "InvalidSignatureException";
      if (fault === undefined && (body.messages as unknown[]).length > 0) return answered();
      const headers = { "x-amzn-errortype": type };
      return Response.json(
        { message: "No." },
        { status: fault === undefined ? 400 : 403, headers },
      );
    });
    const refused = await add(`${ACCESS_KEY_ID}:${SECRET}x:${SESSION_TOKEN}`);
    expect(refused.status).toBe(400);
    const refusal = await refused.text();
    expect(refusal).toContain("invalid_provider_key");
    expect(refusal).not.toContain(SECRET);
    const taken = await add(`${ACCESS_KEY_ID}:${SECRET}:${SESSION_TOKEN}`);
    expect(taken.status).toBe(201);
    const text = await taken.text();
    expect(text).not.toContain(SECRET);
    const { id } = JSON.parse(text) as { id: string };
    const response = await bedrock.chat(NOVA);
    expect(response.status).toBe(200);
    expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({ chargeNano: 0n });
    await bedrock.gateway.request("DELETE", `/v1/provider_keys/${id}`, undefined, {
      key: bedrock.gateway.managementKey,
    });
  });

  function answered(): Response {
    const usage = { inputTokens: 3, outputTokens: 2, totalTokens: 5 };
    const output = { message: { role: "assistant", content: [{ text: "Yes." }] } };
    return Response.json({ output, stopReason: "end_turn", usage });
  }
});

describe("trouble", () => {
  const said = { contentBlockDelta: { contentBlockIndex: 0, delta: { text: "The beginning" } } };
  const ends = [
    { messageStop: { stopReason: "end_turn" } },
    { metadata: { usage: { inputTokens: 9, outputTokens: 2, totalTokens: 11 } } },
  ];

  test.each([
    [
      "an exception",
      () => Buffer.concat([events(said), exception("serviceUnavailableException", "Later.")]),
    ],
    ["a stream that ends in the midst of a message", () => events(said, ...ends).subarray(0, -40)],
    ["a stream without messageStop", () => events(said)],
    [
      "a wrong checksum",
      () => {
        const bytes = events(said, ...ends);
        bytes[bytes.length - 1]! ^= 1;
        return Buffer.concat([bytes]);
      },
    ],
    [
      "an event that is no JSON",
      () => Buffer.concat([events(said), Buffer.from("nonsense that is no message")]),
    ],
  ])("%s behind text is an error in the stream, and the text is billed", async (_what, made) => {
    const bytes = made();
    bedrock.answerWith(() => eventStream(bytes, () => 100));
    const response = await bedrock.chat(spare(), STREAMED);
    const read = await readStream(response);
    expect(read.content).toBe("The beginning");
    expect(read.error?.error.code).toBe("provider_error");
    expect(read.isDone).toBeFalse();
    const bill = await billOfResponse(bedrock.gateway, response);
    expect(bill.chargeNano > 0n).toBeTrue();
  });

  test.each(["throttlingException", "modelStreamErrorException"])(
    "%s before anything else is tried elsewhere, and one answer is billed",
    async (type) => {
      const tried: string[] = [];
      bedrock.answerWith(({ path }) => {
        tried.push(path.split("/")[2]!);
        const bytes = tried.length === 1 ? exception(type, "No.") : events(said, ...ends);
        return eventStream(bytes, () => 100);
      });
      const response = await bedrock.chat("test/two", STREAMED);
      const read = await readStream(response);
      expect(read).toMatchObject({ content: "The beginning", isDone: true, error: undefined });
      expect(tried.toSorted()).toEqual(["qwen.first", "qwen.second"]);
      expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
        chargeNano: nano({ input: 9, output: 2 }, { input: 1, output: 2 }),
      });
    },
  );

  test("usage that cannot be true is counted by the gateway", async () => {
    const usage = { inputTokens: -5, outputTokens: 1e300, totalTokens: 3 };
    const bytes = events(said, ends[0]!, { metadata: { usage } });
    bedrock.answerWith(() => eventStream(bytes, () => 100));
    const response = await bedrock.chat(spare(), STREAMED);
    expect((await readStream(response)).isDone).toBeTrue();
    const bill = await billOfResponse(bedrock.gateway, response);
    expect(bill.estimated).toBeTrue();
    expect(bill.chargeNano > 0n && bill.chargeNano < 1_000_000n).toBeTrue();
  });

  test("what AWS quotes of a request never comes out", async () => {
    const message = `The request signature we calculated does not match. x-amz-security-token:${SESSION_TOKEN} secret ${SECRET}`;
    for (const [status, type] of [
      [403, "InvalidSignatureException"],
      [400, "ValidationException"],
    ] as const) {
      bedrock.answerWith(() =>
        Response.json({ message }, { status, headers: { "x-amzn-errortype": type } }),
      );
      const response = await bedrock.chat(spare());
      const text = await response.text();
      expect(response.status).toBe(status === 400 ? 400 : 502);
      expect(text + JSON.stringify([...response.headers])).not.toContain(SESSION_TOKEN);
      expect(text).not.toContain(SECRET);
    }
    const logs = bedrock.gateway.logLines.join("");
    expect(logs).not.toContain(SESSION_TOKEN);
    expect(logs).not.toContain(SECRET);
  });
});
