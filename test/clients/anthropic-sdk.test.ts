import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import Anthropic, {
  ContentTooLargeError,
  PaymentRequiredError,
  RequestTimeoutError,
  ServiceUnavailableError,
} from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { framed, messageOfStream, STREAMS, streamText } from "../support/anthropic-recordings.ts";
import {
  ADAPTIVE,
  type AnthropicGateway,
  inPieces,
  startAnthropicGateway,
} from "../support/anthropic-upstream.ts";
import { addKeyOf, addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import type { TestGateway } from "../support/gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { listRecordings, loadRecording } from "../upstream/recordings.ts";

const { ThreadUnsupportedRequestError } = Anthropic.Messages;
const MESSAGES: Anthropic.MessageParam[] = [{ role: "user", content: "hello" }];
const LOOK_SCHEMA = {
  type: "object",
  properties: { at: { type: "string" } },
  required: ["at"],
  additionalProperties: false,
} as const;
const LOOK: Anthropic.Tool = {
  name: "look",
  description: "Looks.",
  input_schema: { ...LOOK_SCHEMA, required: [...LOOK_SCHEMA.required] },
};

let replaying: ChatGateway;
let anthropic: AnthropicGateway;
let client: Anthropic;
let passing: Anthropic;
beforeAll(async () => {
  [replaying, anthropic] = await Promise.all([startChatGateway(), startAnthropicGateway()]);
  client = clientOf(replaying);
  passing = clientOf(anthropic.gateway);
});
afterAll(() => Promise.all([replaying.stop(), anthropic.stop()]));
afterEach(() => Promise.all([expectBooksClosed(replaying), expectBooksClosed(anthropic.gateway)]));

function clientOf(gateway: TestGateway, key = gateway.secretKey): Anthropic {
  return new Anthropic({ apiKey: key, baseURL: gateway.baseUrl, maxRetries: 0 });
}

function textOf({ content }: Pick<Anthropic.Message, "content">): string {
  return content.map((block) => (block.type === "text" ? block.text : "")).join("");
}

async function chargeOf(gateway: TestGateway, requestId: string | null | undefined) {
  return (await billOf(gateway, requestId!))!.chargeNano;
}

describe("with the sandbox", () => {
  const ask = { model: "sandbox/chat", max_tokens: 1_000, messages: MESSAGES };

  test("creates a message, billed as by chat", async () => {
    const message = await client.messages.create({ ...ask, system: "Be brief." });
    expect(message).toMatchObject({ type: "message", role: "assistant", stop_reason: "end_turn" });
    expect(textOf(message)).toContain("You said: hello");
    const chat = await replaying.request("POST", "/v1/chat/completions", {
      model: "sandbox/chat",
      max_tokens: 1_000,
      messages: [{ role: "system", content: "Be brief." }, ...MESSAGES],
    });
    const chatId = chat.headers.get("x-request-id");
    await chat.text();
    expect(await chargeOf(replaying, message._request_id)).toBe(await chargeOf(replaying, chatId));
  });

  test("streams one, event by event", async () => {
    const stream = client.messages.stream({ ...ask, thinking: { type: "adaptive" } });
    let text = "";
    let thought = "";
    stream.on("text", (piece) => {
      text += piece;
    });
    stream.on("thinking", (piece) => {
      thought += piece;
    });
    const message = await stream.finalMessage();
    expect(message.content.map(({ type }) => type)).toEqual(["thinking", "text"]);
    expect(textOf(message)).toBe(text);
    expect(message.content[0]).toMatchObject({ thinking: thought });
    expect(message.usage.output_tokens).toBePositive();
  });

  test.each([true, false])("goes round with tools and thinking (stream %s)", async (isStream) => {
    const messages = [...MESSAGES];
    const turn = async () => {
      const body = { ...ask, messages, tools: [LOOK], thinking: { type: "adaptive" as const } };
      const message = isStream
        ? await client.messages.stream(body).finalMessage()
        : await client.messages.create(body);
      messages.push({ role: "assistant", content: message.content });
      return message;
    };
    const asked = await turn();
    expect(asked.stop_reason).toBe("tool_use");
    const calls = asked.content.filter((block) => block.type === "tool_use");
    expect(calls).toHaveLength(1);
    expect(calls[0]).toMatchObject({ name: "look", input: { at: expect.any(String) } });
    messages.push({
      role: "user",
      content: calls.map(({ id }) => ({
        type: "tool_result",
        tool_use_id: id,
        content: [{ type: "text", text: "It is blue." }],
      })),
    });
    const answered = await turn();
    expect(answered.stop_reason).toBe("end_turn");
    expect(textOf(answered)).not.toBe("");
  });

  test.each([true, false])(
    "the SDK's tool runner goes on without a message thread, and keeps the conversation (stream %s)",
    async (stream) => {
      const places: string[] = [];
      const runner = client.beta.messages.toolRunner({
        ...ask,
        stream,
        tools: [
          betaTool({
            ...{ name: "look", description: "Looks.", inputSchema: LOOK_SCHEMA },
            run({ at }) {
              places.push(at);
              return "It is blue.";
            },
          }),
        ],
      });
      const message = await runner.runUntilDone();
      expect(message.stop_reason).toBe("end_turn");
      expect(places).toHaveLength(1);
      const { messages } = runner.params;
      expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "user", "assistant"]);
      expect(JSON.stringify(messages[2])).toContain("It is blue.");
    },
  );

  test.each(["create", "continue"] as const)(
    "thread %s is 400, which names the thread",
    async (type) => {
      const thread =
        type === "create"
          ? { type }
          : { type, previous_message_id: "msg_01XFDUDYJgAACzvnptvVoYEL" };
      // A work thread reads the second body, and refuses it with the same details.
      for (const content of ["hello", "long ".repeat(60_000)]) {
        const messages = [{ role: "user" as const, content }];
        const error = await client.beta.messages.create({ ...ask, messages, thread }).then(
          () => expect.unreachable(),
          (thrown: unknown) => thrown,
        );
        expect(error).toBeInstanceOf(ThreadUnsupportedRequestError);
        expect(error).toMatchObject({
          status: 400,
          error: {
            error: {
              type: "invalid_request_error",
              code: "unsupported_parameter",
              details: { error_code: "thread_unsupported_request", unsupported: ["thread"] },
            },
          },
        });
      }
    },
  );

  test.each([true, false])("stops at a sequence, and names it (stream %p)", async (isStream) => {
    const body = {
      ...ask,
      messages: [{ role: "user" as const, content: "count to 9" }],
      stop_sequences: ["nowhere", ", 5"],
    };
    const message = isStream
      ? await client.messages.stream(body).finalMessage()
      : await client.messages.create(body);
    expect(message).toMatchObject({ stop_reason: "stop_sequence", stop_sequence: ", 5" });
    expect(textOf(message)).toEndWith("4");
  });

  test("counts tokens", async () => {
    const { input_tokens: tokens } = await client.messages.countTokens({
      model: "sandbox/chat",
      messages: MESSAGES,
      tools: [LOOK],
    });
    expect(tokens).toBeGreaterThan(10);
    expect(tokens).toBeLessThan(100);
  });
});

const RECORDINGS = listRecordings().map(loadRecording);

describe("with recorded answers of OpenAI's wire", () => {
  test.each(RECORDINGS.map(({ name, stream }) => [name, stream] as const))(
    "%s comes through whole, billed as by chat (stream %p)",
    async (name, stream) => {
      const { expected } = loadRecording(name);
      const model = replaying.modelThat({ do: "replay", recording: name, seed: 3 });
      const body = { model: `test/${model}`, max_tokens: 4_000, messages: MESSAGES };
      const { message, requestId } = await (stream ? streamed(body) : whole(body));
      expect(textOf(message)).toBe(expected.content);
      const thought = message.content.map((one) => (one.type === "thinking" ? one.thinking : ""));
      expect(thought.join("")).toBe(expected.reasoning);
      const calls = message.content.flatMap((block) =>
        block.type === "tool_use" ? [{ name: block.name, input: block.input }] : [],
      );
      expect(calls).toEqual(
        expected.toolCalls.map((call) => ({
          name: call.name,
          input: JSON.parse(call.arguments || "{}"),
        })),
      );
      const { usage } = expected;
      if (usage !== null) {
        expect(message.usage).toMatchObject({
          input_tokens: usage.promptTokens - usage.cachedTokens,
          cache_read_input_tokens: usage.cachedTokens,
          output_tokens: usage.completionTokens,
        });
      }
      const chat = await replaying.chat(model, { stream, max_tokens: 4_000 });
      await chat.text();
      expect(await chargeOf(replaying, requestId)).toBe(
        await chargeOf(replaying, chat.headers.get("x-request-id")),
      );
    },
  );
});

async function streamed(body: Anthropic.MessageCreateParamsNonStreaming) {
  const stream = client.messages.stream(body);
  return { message: await stream.finalMessage(), requestId: stream.request_id };
}

async function whole(body: Anthropic.MessageCreateParamsNonStreaming) {
  const message = await client.messages.create(body);
  return { message, requestId: message._request_id };
}

describe("with recorded answers of Anthropic", () => {
  test.each(STREAMS)("%s comes through whole, billed as by chat", async (name) => {
    const text = streamText(name);
    const { id: _i, model: _m, usage: _u, ...expected } = messageOfStream(text);
    anthropic.answerWith(() => inPieces(text, () => 11));
    const asked = { model: ADAPTIVE, max_tokens: 1_000, messages: MESSAGES };
    const stream = passing.messages.stream(asked);
    const message = await stream.finalMessage();
    expect(message).toMatchObject(expected);
    expect(message.model).toBe(ADAPTIVE);
    const chat = await anthropic.chat({ ...asked, stream: true });
    await chat.text();
    const charge = await chargeOf(anthropic.gateway, stream.request_id);
    expect(charge).toBeGreaterThan(0n);
    expect(charge).toBe(await chargeOf(anthropic.gateway, chat.headers.get("x-request-id")));
  });

  test("counts tokens", async () => {
    anthropic.answerWith(() => Response.json({ input_tokens: 7 }));
    expect(await passing.messages.countTokens({ model: ADAPTIVE, messages: MESSAGES })).toEqual({
      input_tokens: 7,
    });
  });
});

describe("an error is of its class", () => {
  const ask = { model: "sandbox/chat", max_tokens: 10, messages: MESSAGES };
  const failing = async (
    one: Anthropic,
    body: Partial<Anthropic.MessageCreateParams> = {},
    options: Anthropic.RequestOptions = {},
  ) => {
    try {
      await one.messages.create({ ...ask, ...body, stream: false }, options);
    } catch (error) {
      return error as InstanceType<typeof Anthropic.APIError>;
    }
    throw new Error("there was no error");
  };

  type ErrorClass = abstract new (...args: never) => Error;
  /** The very class: those of 503 and 529 extend the one of other statuses from 500 on. */
  const expectError = (
    error: InstanceType<typeof Anthropic.APIError>,
    kind: ErrorClass,
    status: number,
    type: string,
  ) => {
    expect(error.constructor).toBe(kind);
    expect(error.status).toBe(status);
    expect(error.error).toMatchObject({
      type: "error",
      error: { type, message: expect.any(String) },
      request_id: error.requestID,
    });
  };

  test.each([
    [400, { messages: [] }, Anthropic.BadRequestError, "invalid_request_error"],
    [404, { model: "nobody/nothing" }, Anthropic.NotFoundError, "not_found_error"],
    [429, { model: "sandbox/error-429" }, Anthropic.RateLimitError, "rate_limit_error"],
    [502, { model: "sandbox/error-500" }, Anthropic.InternalServerError, "api_error"],
    [503, { model: "sandbox/overloaded" }, ServiceUnavailableError, "overloaded_error"],
  ] as const)("%i of a request", async (status, body, kind, type) => {
    expectError(await failing(client, body as never), kind, status, type);
  });

  test("408 of a provider that gives up", async () => {
    const model = `test/${replaying.modelThat({ do: "error", status: 408 })}`;
    const error = await failing(client, { model });
    expectError(error, RequestTimeoutError, 408, "timeout_error");
  });

  test("413 of a body beyond 32 MB", async () => {
    const content = "a".repeat(33 * 1024 * 1024);
    const error = await failing(client, { messages: [{ role: "user", content }] });
    expectError(error, ContentTooLargeError, 413, "request_too_large");
  });

  test("409 of an Idempotency-Key that another request has used", async () => {
    const once = { headers: { "idempotency-key": crypto.randomUUID() } };
    await client.messages.create(ask, once);
    const error = await failing(client, { max_tokens: 11 }, once);
    expectError(error, Anthropic.ConflictError, 409, "invalid_request_error");
  });

  test("401, 402, 403 and 429 of a key", async () => {
    const of = (key: string) => failing(clientOf(replaying, key));
    const none = await of("gateway_sk_none");
    expectError(none, Anthropic.AuthenticationError, 401, "authentication_error");
    const management = await of(await addKeyOf("management", replaying));
    expectError(management, Anthropic.PermissionDeniedError, 403, "permission_error");
    const poor = await of(await addSecretKey(replaying, { dailyBudgetNano: 0n }));
    expectError(poor, PaymentRequiredError, 402, "billing_error");
    const slow = await addSecretKey(replaying, { rateLimitRpm: 1 });
    await clientOf(replaying, slow).messages.create(ask);
    expectError(await of(slow), Anthropic.RateLimitError, 429, "rate_limit_error");
    const { input_tokens: tokens } = await client.messages.countTokens({
      model: ask.model,
      messages: MESSAGES,
    });
    expect(tokens).toBePositive();
  });

  test("of a stream that breaks off", async () => {
    const stream = client.messages.stream({ ...ask, max_tokens: 500, model: "sandbox/cut" });
    const error = (await stream.finalMessage().catch((thrown: unknown) => thrown)) as Error;
    expect(error).toBeInstanceOf(Anthropic.APIError);
    expect(error.message).toContain("api_error");
  });

  test("of a stream whose provider reports an overload", async () => {
    const start = {
      type: "message_start",
      message: { id: "m", type: "message", role: "assistant", content: [], usage: {} },
    };
    const block = {
      type: "content_block_start",
      index: 0,
      content_block: { type: "text", text: "a" },
    };
    const event = { type: "error", error: { type: "overloaded_error", message: "Overloaded" } };
    anthropic.answerWith(() => inPieces(framed([start, block, event]), () => 30));
    const stream = passing.messages.stream({ ...ask, model: ADAPTIVE });
    const error = (await stream.finalMessage().catch((thrown: unknown) => thrown)) as Error;
    expect(error.message).toContain("overloaded_error");
  });
});
