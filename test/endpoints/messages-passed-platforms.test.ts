import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { acceptsBetas } from "../../src/providers/anthropic/platform-betas.ts";
import { STREAMS, streamText, WHOLE, wholeMessage } from "../support/anthropic-recordings.ts";
import { inPieces } from "../support/anthropic-upstream.ts";
import { chunk, exception } from "../support/aws-event-stream.ts";
import {
  type BedrockGateway,
  eventStream,
  startBedrockGateway,
} from "../support/bedrock-upstream.ts";
import {
  type CloudUpstream,
  serviceAccount,
  startCloudUpstream,
} from "../support/cloud-upstream.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { messageEvents } from "../support/message-events.ts";
import { randomPieceLength, seededRandom } from "../upstream/random.ts";

/** What Anthropic's clients send to Claude on Bedrock and on Vertex AI, through one gateway that has both. */

type Fields = Record<string, unknown>;
type Platform = "bedrock" | "vertex";

const CLAUDE = "anthropic/claude-opus-5-5";
const NAMES = { bedrock: "global.anthropic.claude-opus-5-5", vertex: "claude-opus-5-5" };
/** Of those that each platform has a price of hour-long caches for. */
const KEPT_FOR_HOUR = { bedrock: CLAUDE, vertex: "anthropic/claude-sonnet-5" };
/**
 * 10 new, 1000 read, 100 written for five minutes, 200 for an hour and 7 of the answer, at USD for a million of 4,
 * 0.2, 5, 8 and 20, and of 2.2, 0.22, 2.75, 4.4 and 11.
 */
const CHARGES = { bedrock: 2_480_000n, vertex: 1_474_000n };
const LISTED = "x-gateway-dropped-parameters";
const PLATFORMS: readonly Platform[] = ["bedrock", "vertex"];
const VERSIONS = { bedrock: "bedrock-2023-05-31", vertex: "vertex-2023-10-16" };
const PROMPT = { messages: [{ role: "user", content: "hello" }] };
const MESSAGE = {
  id: "msg_of_anthropic",
  type: "message",
  role: "assistant",
  model: "claude-opus-5-5",
  content: [{ type: "text", text: "hi" }],
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: { input_tokens: 40, output_tokens: 7 },
};

let bedrock: BedrockGateway;
let google: CloudUpstream;
beforeAll(async () => {
  google = startCloudUpstream();
  const vertex = { id: "vertex", type: "vertex", base_url: google.baseUrl };
  bedrock = await startBedrockGateway(
    [
      {
        id: CLAUDE,
        endpoints: PLATFORMS.map((provider) => ({ provider, model: NAMES[provider] })),
      },
    ],
    [{ ...vertex, api_key: serviceAccount(google.origin) }],
  );
});
afterAll(async () => {
  await bedrock.stop();
  await google.stop();
});
afterEach(() => expectBooksClosed(bedrock.gateway));

function answerWith(answer: () => Response): void {
  bedrock.answerWith(answer);
  google.answer = answer;
}

function seenOf(platform: Platform) {
  return platform === "bedrock" ? bedrock.seen.at(-1)! : google.asked.at(-1)!;
}

function send(platform: Platform, body: Fields = {}, headers: Record<string, string> = {}) {
  const request = { model: CLAUDE, max_tokens: 2_000, provider: { only: [platform] }, ...PROMPT };
  return bedrock.gateway.request("POST", "/v1/messages", { ...request, ...body }, { headers });
}

/** In the framing of the platform, cut anywhere. */
function streamed(platform: Platform, text: string): Response {
  const random = seededRandom(7);
  const length = () => randomPieceLength(random);
  if (platform === "vertex") return inPieces(text, length);
  return eventStream(Buffer.concat(eventsIn(text).map(chunk)), length);
}

function eventsIn(text: string): Fields[] {
  const lines = text.split("\n").filter((line) => line.startsWith("data:"));
  return lines.map((line) => JSON.parse(line.slice(5)) as Fields);
}

describe.each(PLATFORMS)("on %s", (platform) => {
  test.each(STREAMS)("%s passes as it came, cut at random offsets", async (name) => {
    const text = streamText(name);
    answerWith(() => streamed(platform, text));
    const response = await send(platform, { stream: true });
    expect(response.status).toBe(200);
    const got = messageEvents(await response.text());
    const { chargeNano, estimated } = await billOfResponse(bedrock.gateway, response);
    expect(estimated).toBeFalse();
    const id = `msg_${response.headers.get("request-id")!.slice(4)}`;
    const expected = eventsIn(text).map((event) => {
      const { type, message, usage } = event as Record<string, Fields>;
      if (event.type === "message_start") {
        return { ...event, message: { ...message, id, model: CLAUDE } };
      }
      const cost = Number(chargeNano) / 1e9;
      return (type as unknown) === "message_delta"
        ? { ...event, usage: { ...usage, cost } }
        : event;
    });
    expect(got).toEqual(expected);
  });

  test.each(WHOLE)("%s passes whole", async (name) => {
    const message = wholeMessage(name);
    answerWith(() => Response.json(message));
    const response = await send(platform);
    const bill = await billOfResponse(bedrock.gateway, response);
    expect(bill).toMatchObject({ provider: platform, estimated: false });
    expect(await response.json()).toEqual({
      ...message,
      id: `msg_${response.headers.get("request-id")!.slice(4)}`,
      model: CLAUDE,
      usage: { ...message.usage, cost: Number(bill.chargeNano) / 1e9 },
    });
  });

  test.each([false, true])(
    "caches of an hour and of five minutes have their prices, streamed: %p",
    async (stream) => {
      const usage = {
        input_tokens: 10,
        cache_read_input_tokens: 1_000,
        cache_creation_input_tokens: 300,
        cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 200 },
        output_tokens: 7,
      };
      const message = { ...MESSAGE, usage };
      const events = [
        { type: "message_start", message: { ...message, content: [] } },
        { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 7 } },
        { type: "message_stop" },
      ];
      const text = events
        .map((one) => `event: ${one.type}\ndata: ${JSON.stringify(one)}\n\n`)
        .join("");
      answerWith(() => (stream ? streamed(platform, text) : Response.json(message)));
      const cache_control = { type: "ephemeral", ttl: "1h" };
      const content = [{ type: "text", text: "x".repeat(5_000), cache_control }];
      const messages = [{ role: "user", content }];
      const response = await send(platform, { model: KEPT_FOR_HOUR[platform], messages, stream });
      expect(response.headers.get(LISTED)).toBeNull();
      await response.text();
      expect(seenOf(platform).body.messages).toEqual(messages);
      expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
        chargeNano: CHARGES[platform],
        estimated: false,
        quantities: { cache_write_tokens: 300, cache_write_1h_tokens: 200 },
      });
    },
  );

  test("requests pass with the platform's version, without what it refuses, which is listed", async () => {
    answerWith(() => Response.json(MESSAGE));
    const document = {
      type: "document",
      source: { type: "content", content: [{ type: "text", text: "Of cats." }] },
      citations: { enabled: true },
    };
    const tool = { name: "look", description: "Looks.", input_schema: { type: "object" } };
    const taken = {
      system: [{ type: "text", text: "Be.", cache_control: { type: "ephemeral" } }],
      messages: [{ role: "user", content: [document, { type: "text", text: "hello" }] }],
      tools: [tool, { type: "bash_20250124", name: "bash" }],
      thinking: { type: "adaptive" },
      output_config: { effort: "max" },
      metadata: { user_id: "u" },
    };
    const edits = { edits: [{ type: "clear_thinking_20251015", keep: "all" }] };
    const refused = {
      tools: [{ ...tool, eager_input_streaming: true }, taken.tools[1]],
      service_tier: "auto",
      inference_geo: "global",
      some_new_field: [1],
    };
    const betas = "context-management-2025-06-27,claude-code-20250219";
    const response = await send(
      platform,
      { ...taken, ...refused, context_management: edits },
      { "anthropic-version": "2023-06-01", "anthropic-beta": betas },
    );
    expect(response.status).toBe(200);
    expect(response.headers.get(LISTED)).toBe(
      "service_tier, some_new_field, tools.eager_input_streaming, anthropic-beta.claude-code-20250219",
    );
    const { path, body, headers } = seenOf(platform);
    const beta = "context-management-2025-06-27";
    expect(body).toEqual({
      ...taken,
      context_management: edits,
      max_tokens: 2_000,
      anthropic_version: VERSIONS[platform],
      ...(platform === "bedrock" && { anthropic_beta: [beta] }),
    });
    expect(headers.get("anthropic-beta")).toBe(platform === "bedrock" ? null : beta);
    expect(headers.has("anthropic-version")).toBeFalse();
    expect(path).toEndWith(platform === "bedrock" ? "/invoke" : `${NAMES.vertex}:rawPredict`);
    if (platform === "bedrock") expect(bedrock.seen.at(-1)!.fault).toBeUndefined();
  });

  test("edits of the context go with their beta alone", async () => {
    answerWith(() => Response.json(MESSAGE));
    const response = await send(platform, { context_management: { edits: [] } });
    expect(response.headers.get(LISTED)).toBe("context_management");
    expect(seenOf(platform).body).not.toHaveProperty("context_management");
  });

  test("breakpoints stand for a cache_control of the request, and system messages for no turns", async () => {
    answerWith(() => Response.json(MESSAGE));
    const cache_control = { type: "ephemeral" };
    const messages = [...PROMPT.messages, { role: "system", content: "Now." }];
    const response = await send(platform, {
      messages,
      system: "Be.",
      cache_control: { ...cache_control, scope: "global" },
    });
    expect(response.headers.get(LISTED)).toBeNull();
    expect(seenOf(platform).body).toEqual({
      anthropic_version: VERSIONS[platform],
      max_tokens: 2_000,
      system: [
        { type: "text", text: "Be." },
        { type: "text", text: "Now.", cache_control },
      ],
      messages: [{ role: "user", content: [{ type: "text", text: "hello", cache_control }] }],
    });
  });

  test("a body that is too long for the event loop passes as well", async () => {
    answerWith(() => Response.json(MESSAGE));
    const text = "The quick brown fox jumps over the lazy dog. ".repeat(8_000);
    const messages = [{ role: "user", content: [{ type: "text", text }] }];
    const response = await send(platform, { messages, foo: 1 });
    expect(response.status).toBe(200);
    expect(response.headers.get(LISTED)).toBe("foo");
    const expected = { anthropic_version: VERSIONS[platform], max_tokens: 2_000, messages };
    expect(seenOf(platform).body).toEqual(expected);
    if (platform === "bedrock") expect(bedrock.seen.at(-1)!.fault).toBeUndefined();
  });

  test("what would have to be fetched is refused", async () => {
    const source = { type: "url", url: "https://example.com/cat.png" };
    const content = [{ type: "image", source }];
    const response = await send(platform, { messages: [{ role: "user", content }] });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ type: "error" });
  });

  test.each([
    [400, "ValidationException", "invalid_request_error", 400],
    [429, "ThrottlingException", "rate_limit_error", 429],
  ] as const)("an error %i of the provider is the client's", async (status, name, type, ours) => {
    const error = { type, message: "no." };
    answerWith(() => Response.json({ __type: name, message: "no.", error }, { status }));
    const response = await send(platform, { stream: true });
    expect(response.status).toBe(ours);
    expect(await response.json()).toMatchObject({ type: "error", error: { type } });
  });
});

test("betas go to platforms that document them, that of interleaved thinking to models that need it", () => {
  const interleaved = "interleaved-thinking-2025-05-14";
  const of = (model: string) => ({ model, modelId: "test/claude" });
  const takesBeta = acceptsBetas("effort-2025-11-24");
  expect(takesBeta("effort-2025-11-24", of(NAMES.bedrock))).toBeTrue();
  expect(acceptsBetas()("effort-2025-11-24", of(NAMES.vertex))).toBeFalse();
  expect(takesBeta("files-api-2025-04-14", of(NAMES.bedrock))).toBeFalse();
  expect(takesBeta(interleaved, of("claude-sonnet-4-5@20250929"))).toBeTrue();
  expect(takesBeta(interleaved, of("claude-3-7-sonnet@20250219"))).toBeFalse();
  expect(takesBeta(interleaved, of(NAMES.bedrock))).toBeFalse();
});

test("a cache of an hour that has no price is one of five minutes, which is listed", async () => {
  answerWith(() => Response.json(MESSAGE));
  const cache_control = { type: "ephemeral", ttl: "1h" };
  const content = [{ type: "text", text: "hello", cache_control }];
  const response = await send("vertex", { messages: [{ role: "user", content }] });
  expect(response.headers.get(LISTED)).toBe("cache_control.ttl");
  const sent = [{ type: "text", text: "hello", cache_control: { type: "ephemeral" } }];
  expect(seenOf("vertex").body.messages).toEqual([{ role: "user", content: sent }]);
});

test("an exception in a stream of Bedrock is an error in it, and what came is billed", async () => {
  const start = { type: "message_start", message: { ...MESSAGE, content: [] } };
  const delta = { type: "text_delta", text: "The beginning" };
  const bytes = Buffer.concat([
    chunk(start),
    chunk({ type: "content_block_delta", index: 0, delta }),
    exception("modelStreamErrorException", "The model failed."),
  ]);
  bedrock.answerWith(() => eventStream(bytes, () => bytes.length));
  const response = await send("bedrock", { stream: true });
  const events = messageEvents(await response.text());
  expect(events.map(({ type }) => type)).toEqual(["message_start", "content_block_delta", "error"]);
  expect(await billOfResponse(bedrock.gateway, response)).toMatchObject({
    promptTokens: 40,
    estimated: true,
  });
});

test("other models of Bedrock get the request translated", async () => {
  const usage = { inputTokens: 3, outputTokens: 2, totalTokens: 5 };
  const output = { message: { role: "assistant", content: [{ text: "Yes." }] } };
  bedrock.answerWith(() => Response.json({ output, stopReason: "end_turn", usage }));
  const response = await send("bedrock", { model: "amazon/nova-lite-v1" });
  expect(response.status).toBe(200);
  expect(bedrock.seen.at(-1)!.path).toEndWith("/converse");
  expect(await response.json()).toMatchObject({ content: [{ type: "text", text: "Yes." }] });
});
