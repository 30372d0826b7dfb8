import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { OpenRouter } from "@openrouter/sdk";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

let gateway: ChatGateway;
let client: OpenRouter;
beforeAll(async () => {
  gateway = await startChatGateway();
  const retryConfig = { strategy: "none" } as const;
  const { baseUrl, secretKey: apiKey } = gateway;
  client = new OpenRouter({ serverURL: `${baseUrl}/v1`, apiKey, retryConfig });
});
afterAll(() => gateway.stop());

const messages = [{ role: "user" as const, content: "Hello" }];

async function whole(model: string, headers?: HeadersInit) {
  const chatRequest = { model, messages, stream: false as const };
  const answer = await client.chat.send({ chatRequest }, { headers });
  if (!("choices" in answer)) throw new Error("a stream came");
  return answer;
}

async function streamed(model: string, headers?: HeadersInit) {
  const streamOptions = { includeUsage: true };
  const chatRequest = { model, messages, stream: true as const, streamOptions };
  const answer = await client.chat.send({ chatRequest }, { headers });
  if ("choices" in answer) throw new Error("a whole answer came");
  const chunks = [];
  for await (const chunk of answer) chunks.push(chunk);
  return chunks;
}

/** What providers say of it, and what stands in a whole answer and in chunks then. */
const PROVIDERS: readonly [string, Behaviour, string | null][] = [
  ["names a string", { do: "complete" }, "fp_upstream"],
  ["says null", { do: "nulls", content: "Hi.", events: 3 }, null],
];

describe.each(PROVIDERS)("of a provider that %s", (_, behaviour, fingerprint) => {
  test("OpenRouter's SDK reads whole answers with their system fingerprint", async () => {
    const answer = await whole(`test/${gateway.modelThat(behaviour)}`);
    expect(answer.systemFingerprint).toBe(fingerprint);
    expect(answer.choices).toHaveLength(1);
  });

  test("OpenRouter's SDK reads every chunk of a stream", async () => {
    const chunks = await streamed(`test/${gateway.modelThat(behaviour)}`);
    expect(chunks.length).toBeGreaterThan(2);
    const told = new Set(chunks.slice(0, -1).map((chunk) => chunk.systemFingerprint));
    expect(told).toEqual(new Set([fingerprint ?? undefined]));
    expect(chunks.at(-1)!.usage!.totalTokens).toBeGreaterThan(0);
  });

  test("OpenRouter's SDK reads answers of the response cache, in either form", async () => {
    for (const first of [whole, streamed]) {
      const model = `test/${gateway.modelThat(behaviour)}`;
      const headers = { "x-gateway-cache": "on" };
      await first(model, headers);
      const before = gateway.upstream.served.length;
      expect((await whole(model, headers)).systemFingerprint).toBe(fingerprint);
      const [chunk] = await streamed(model, headers);
      expect(chunk!.systemFingerprint).toBe(fingerprint ?? undefined);
      expect(gateway.upstream.served.length).toBe(before);
    }
  });
});

test("OpenRouter's SDK reads answers of a provider of another wire", async () => {
  expect((await whole("sandbox/chat")).systemFingerprint).toBeNull();
  const chunks = await streamed("sandbox/chat");
  expect(chunks[0]).not.toHaveProperty("systemFingerprint");
});

test("OpenRouter's SDK reads answers of a provider that has no system fingerprint", async () => {
  const message = { role: "assistant", content: "Hi." };
  const answer = { choices: [{ index: 0, finish_reason: "stop", message }] };
  const model = `test/${gateway.modelThat({ do: "frames", frames: [answer] })}`;
  expect((await whole(model)).systemFingerprint).toBeNull();
});
