import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import { messageOfStream, STREAMS, streamText } from "../../support/anthropic-recordings.ts";
import {
  ADAPTIVE,
  type AnthropicGateway,
  inPieces,
  startAnthropicGateway,
} from "../../support/anthropic-upstream.ts";
import { billOf, expectBooksClosed } from "../../support/ledger-checks.ts";
import { messageEvents } from "../../support/message-events.ts";

type Fields = Record<string, unknown>;

let anthropic: AnthropicGateway;
beforeAll(async () => {
  anthropic = await startAnthropicGateway();
});
afterAll(() => anthropic.stop());
afterEach(() => expectBooksClosed(anthropic.gateway));

/** Without the one that ends with a refusal. */
const KEPT = STREAMS.filter((name) => !name.includes("refusal"));
const ON = { "x-gateway-cache": "on" };
const send = (prompt: string, body: Fields = {}, headers: Record<string, string> = ON) =>
  anthropic.gateway.request(
    "POST",
    "/v1/messages",
    { model: ADAPTIVE, max_tokens: 2_000, messages: [{ role: "user", content: prompt }], ...body },
    { headers },
  );
const outcomeOf = (response: Response) => response.headers.get("x-gateway-cache");
const newPrompt = () => `hello ${crypto.randomUUID()}`;

/** The message that a stream is, read as the SDK reads it. */
function streamedMessage(text: string): Fields {
  expect(text.endsWith('event: message_stop\ndata: {"type":"message_stop"}\n\n')).toBeTrue();
  messageEvents(text);
  return messageOfStream(text);
}

/** Nor what the reader of streams passes over. */
function withoutOwn({ id: _, context_management, usage, ...message }: Fields): unknown {
  return { ...message, usage: { ...(usage as Fields), cost: 0 } };
}

describe("a message of Anthropic's own models", () => {
  test.each(KEPT)("%s, made in a stream, is given again whole and streamed", async (name) => {
    const prompt = newPrompt();
    const text = streamText(name);
    let calls = 0;
    anthropic.answerWith(() => {
      calls++;
      return inPieces(text, () => 50);
    });
    const made = await send(prompt, { stream: true });
    expect(outcomeOf(made)).toBe("miss");
    const expected = withoutOwn(streamedMessage(await made.text()));
    const whole = await send(prompt);
    expect(outcomeOf(whole)).toBe("hit");
    const message = (await whole.json()) as Fields;
    expect(withoutOwn(message)).toEqual(expected);
    expect(message.id).toBe(`msg_${whole.headers.get("request-id")!.slice(4)}`);
    expect(message.usage).toMatchObject({ cost: 0 });
    const again = await send(prompt, { stream: true });
    expect(outcomeOf(again)).toBe("hit");
    expect(again.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(withoutOwn(streamedMessage(await again.text()))).toEqual(expected);
    expect(calls).toBe(1);
    expect(await billOf(anthropic.gateway, again.headers.get("request-id")!)).toMatchObject({
      chargeNano: 0n,
    });
  });

  test.each(KEPT)("%s, made whole, is given again in a stream", async (name) => {
    const prompt = newPrompt();
    const made = messageOfStream(streamText(name));
    anthropic.answerWith(() => Response.json(made));
    expect(outcomeOf(await send(prompt))).toBe("miss");
    const again = await send(prompt, { stream: true });
    expect(outcomeOf(again)).toBe("hit");
    const message = streamedMessage(await again.text());
    expect(message.content).toEqual(made.content);
    expect(message.stop_reason).toEqual(made.stop_reason);
  });

  test("is another one with other betas, and the same for another end user", async () => {
    const prompt = newPrompt();
    anthropic.answerWith(() => Response.json(messageOfStream(streamText(STREAMS[0]!))));
    await send(prompt, { metadata: { user_id: "ada" } });
    const hit = await send(prompt, { metadata: { user_id: "grace" } });
    expect(outcomeOf(hit)).toBe("hit");
    const other = await send(prompt, {}, { ...ON, "anthropic-beta": "context-1m-2025-08-07" });
    expect(outcomeOf(other)).toBe("miss");
  });

  test.each(["refusal", "pause_turn"])("that ends with %s is not kept", async (reason) => {
    const prompt = newPrompt();
    const message = messageOfStream(streamText(STREAMS[0]!));
    anthropic.answerWith(() => Response.json({ ...message, stop_reason: reason }));
    for (let call = 0; call < 2; call++) {
      const response = await send(prompt);
      expect(response.status).toBe(200);
      expect(outcomeOf(response)).toBe("miss");
    }
  });

  test("is read by the SDK, whole and streamed", async () => {
    const client = new Anthropic({
      apiKey: anthropic.gateway.secretKey,
      baseURL: anthropic.gateway.baseUrl,
      maxRetries: 0,
      defaultHeaders: ON,
    });
    const made = messageOfStream(streamText(STREAMS[0]!));
    let calls = 0;
    anthropic.answerWith(() => {
      calls++;
      return Response.json(made);
    });
    const body = {
      model: ADAPTIVE,
      max_tokens: 2_000,
      messages: [{ role: "user" as const, content: newPrompt() }],
    };
    for (let call = 0; call < 2; call++) {
      const message = await client.messages.create(body);
      expect(message.content).toEqual(made.content as never);
    }
    const streamed = await client.messages.stream(body).finalMessage();
    expect(streamed.content.map(({ type }) => type)).toEqual(
      (made.content as { type: "text" }[]).map(({ type }) => type),
    );
    expect(calls).toBe(1);
  });
});

test("a message that is translated is given again", async () => {
  const prompt = newPrompt();
  const body = { model: "sandbox/chat", max_tokens: 100 };
  const made = await send(prompt, { ...body, stream: true });
  const expected = withoutOwn(streamedMessage(await made.text()));
  const whole = await send(prompt, body);
  expect(outcomeOf(whole)).toBe("hit");
  expect(withoutOwn((await whole.json()) as Fields)).toEqual(expected);
  const streamed = await send(prompt, { ...body, stream: true });
  expect(withoutOwn(streamedMessage(await streamed.text()))).toEqual(expected);
});
