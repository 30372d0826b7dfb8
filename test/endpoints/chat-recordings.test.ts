import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, chargeNano, startChatGateway } from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import { listRecordings, loadRecording, type Recording } from "../upstream/recordings.ts";

const SEEDS = [1, 20, 300];
const RECORDINGS = listRecordings().map(loadRecording);
const STREAMS = RECORDINGS.filter(({ stream }) => stream);
const WHOLE = RECORDINGS.filter(({ stream }) => !stream);

interface CompletionBody {
  readonly id: string;
  readonly choices: readonly [
    { readonly message: { readonly reasoning?: string } },
    ...(readonly unknown[]),
  ];
  readonly usage: Record<string, unknown>;
}

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

/** Tokens as the gateway counts them: what a provider tells beside its completion tokens is in them. */
function tokensOf({ expected }: Recording) {
  const { promptTokens, completionTokens, cachedTokens, reasoningTokens } = expected.usage!;
  return {
    prompt: promptTokens,
    completion: completionTokens,
    cached: cachedTokens,
    reasoning: reasoningTokens,
  };
}

async function expectBill(recording: Recording, response: Response): Promise<bigint> {
  const bill = await billOfResponse(gateway, response);
  expect(bill).toMatchObject({ provider: "primary", status: 200 });
  if (recording.expected.usage === null) {
    expect(bill.estimated).toBeTrue();
    expect(bill.promptTokens).toBePositive();
    expect(bill.completionTokens).toBePositive();
    expect(bill.chargeNano).toBe(
      chargeNano({ prompt: bill.promptTokens, completion: bill.completionTokens }),
    );
    return bill.chargeNano;
  }
  const tokens = tokensOf(recording);
  expect(bill).toMatchObject({
    estimated: false,
    promptTokens: tokens.prompt,
    cachedPromptTokens: tokens.cached,
    completionTokens: tokens.completion,
    reasoningTokens: tokens.reasoning,
    chargeNano: chargeNano(tokens),
  });
  return bill.chargeNano;
}

describe("recorded streams, cut at random offsets", () => {
  test("are those of OpenAI, Groq, DeepSeek, Mistral, OpenRouter and a compatible server", () => {
    expect(new Set(STREAMS.map(({ provider }) => provider))).toEqual(
      new Set(["openai", "groq", "deepseek", "mistral", "openrouter", "openai-compatible"]),
    );
  });

  test.each(STREAMS.map(({ name }) => name))(
    "%s comes through whole and is billed right",
    async (name) => {
      const recording = loadRecording(name);
      const { expected } = recording;
      const readings = SEEDS.map(async (seed) => {
        const slug = gateway.modelThat({ do: "replay", recording: name, seed });
        const response = await gateway.chat(slug, {
          stream: true,
          stream_options: { include_usage: true },
        });
        expect(response.status).toBe(200);
        const stream = await readStream(response);
        expectStreamShape(stream, { model: `test/${slug}`, includesUsage: true });
        expect(stream).toMatchObject({
          content: expected.content,
          reasoning: expected.reasoning,
          finishReason: expected.finishReason,
          // Numbered from 0, whatever the provider begins with.
          toolCalls: expected.toolCalls.map((call, index) => ({ ...call, index })),
        });
        const charge = await expectBill(recording, response);
        expect(stream.usage!.cost).toBe(Number(charge) / 1e9);
      });
      await Promise.all(readings);
    },
  );

  test("tell usage to a client that did not ask for it in no chunk, and are billed all the same", async () => {
    const readings = STREAMS.map(async (recording) => {
      const slug = gateway.modelThat({ do: "replay", recording: recording.name, cut: false });
      const response = await gateway.chat(slug, { stream: true });
      const stream = await readStream(response);
      expectStreamShape(stream, { model: `test/${slug}`, includesUsage: false });
      expect(stream.content).toBe(recording.expected.content);
      await expectBill(recording, response);
    });
    await Promise.all(readings);
  });

  test("leave the reasoning out where the request hides it, and bill it", async () => {
    const reasoned = STREAMS.filter(({ expected }) => expected.reasoning !== "");
    expect(reasoned.length).toBeGreaterThanOrEqual(4);
    for (const body of [{ include_reasoning: false }, { reasoning: { exclude: true } }]) {
      const readings = reasoned.map(async (recording) => {
        const slug = gateway.modelThat({ do: "replay", recording: recording.name, cut: false });
        const response = await gateway.chat(slug, { stream: true, ...body });
        const stream = await readStream(response);
        expect(stream.text).not.toContain('"reasoning"');
        expect(stream.content).toBe(recording.expected.content);
        expect(stream.isDone).toBeTrue();
        await expectBill(recording, response);
      });
      await Promise.all(readings);
    }
  });
});

describe("recorded whole answers", () => {
  test.each(WHOLE.map(({ name }) => name))(
    "%s comes through whole and is billed right",
    async (name) => {
      const recording = loadRecording(name);
      const { expected } = recording;
      const slug = gateway.modelThat({ do: "replay", recording: name });
      const response = await gateway.chat(slug);
      expect(response.status).toBe(200);
      const body = (await response.json()) as CompletionBody;
      expect(body.id).toMatch(/^chatcmpl-[0-9a-f]{32}$/);
      expect(body).toMatchObject({ object: "chat.completion", model: `test/${slug}` });
      const [{ message, ...choice }, ...others] = body.choices;
      expect(others).toEqual([]);
      expect(choice).toMatchObject({ index: 0, finish_reason: expected.finishReason });
      expect(message).toMatchObject({ role: "assistant", content: expected.content });
      expect(message.reasoning ?? "").toBe(expected.reasoning);
      const charge = await expectBill(recording, response);
      const tokens = tokensOf(recording);
      expect(body.usage).toMatchObject({
        prompt_tokens: tokens.prompt,
        completion_tokens: tokens.completion,
        total_tokens: tokens.prompt + tokens.completion,
        cost: Number(charge) / 1e9,
      });
      expect(Number(response.headers.get("x-gateway-cost"))).toBe(Number(charge) / 1e9);
    },
  );
});

test("a stream asked of a server that answers whole is a stream all the same, and billed alike", async () => {
  for (const recording of WHOLE) {
    const slug = gateway.modelThat({ do: "json-for-stream", content: recording.expected.content });
    const response = await gateway.chat(slug, { stream: true });
    const stream = await readStream(response);
    expectStreamShape(stream, { model: `test/${slug}`, includesUsage: false });
    expect(stream.content).toBe(recording.expected.content);
    expect((await billOfResponse(gateway, response)).estimated).toBeFalse();
  }
});
