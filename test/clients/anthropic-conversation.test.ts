import { afterAll, beforeAll, expect, test } from "bun:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, jsonSchema, type ModelMessage, stepCountIs, tool } from "ai";
import OpenAI from "openai";
import { framed, messageOfStream } from "../support/anthropic-recordings.ts";
import {
  type AnthropicGateway,
  BUDGET,
  inPieces,
  startAnthropicGateway,
  UPSTREAM_KEY,
} from "../support/anthropic-upstream.ts";

/**
 * A conversation with tools and thinking, by OpenAI's SDK through the gateway: what Anthropic gets with each turn
 * is what its own provider package of the `ai` SDK sends for the same conversation.
 */

type Fields = Record<string, unknown>;

let anthropic: AnthropicGateway;
beforeAll(async () => {
  anthropic = await startAnthropicGateway();
});
afterAll(() => anthropic.stop());

const QUESTIONS = ["How are sky and sea?", "And now?", "And the sea?", "Thanks."];
const SYSTEM = "Look before you speak.";
const PARAMETERS = {
  type: "object",
  properties: { at: { type: "string" } },
  required: ["at"],
  additionalProperties: false,
} as const;
const resultOf = (at: unknown) => `${at} is blue`;

/** Asks for two things at once and says what it saw, each time behind some thinking. */
function answerTo(body: Fields): Fields[] {
  const messages = body.messages as { role: string; content: { type: string }[] }[];
  const turn = messages.length;
  const isAnswered = messages.at(-1)!.content.some(({ type }) => type === "tool_result");
  const thinking = {
    type: "thinking",
    thinking: `thought ${turn}`,
    signature: btoa(`signature ${turn}`),
  };
  const use = (name: string) => ({
    type: "tool_use",
    id: `toolu_${turn}_${name}`,
    name: "look",
    input: { at: name },
  });
  return isAnswered
    ? [thinking, { type: "text", text: `Blue, ${turn}.` }]
    : [thinking, { type: "text", text: "Let me see." }, use("sky"), use("sea")];
}

/** The same answer as events. */
function eventsOf(content: readonly Fields[]): object[] {
  const events: object[] = [
    {
      type: "message_start",
      message: { content: [], usage: { input_tokens: 9, output_tokens: 1 } },
    },
  ];
  for (const [index, block] of content.entries()) {
    const begin = (content_block: Fields) =>
      events.push({ type: "content_block_start", index, content_block });
    const add = (delta: Fields) => events.push({ type: "content_block_delta", index, delta });
    if (block.type === "thinking") {
      begin({ type: "thinking", thinking: "", signature: "" });
      for (const piece of (block.thinking as string).match(/.{1,4}/g)!) {
        add({ type: "thinking_delta", thinking: piece });
      }
      add({ type: "signature_delta", signature: block.signature });
    } else if (block.type === "text") {
      begin({ type: "text", text: "" });
      add({ type: "text_delta", text: block.text });
    } else {
      begin({ ...block, input: {} });
      for (const piece of JSON.stringify(block.input).match(/.{1,3}/g)!) {
        add({ type: "input_json_delta", partial_json: piece });
      }
    }
    events.push({ type: "content_block_stop", index });
  }
  const stop_reason = content.some(({ type }) => type === "tool_use") ? "tool_use" : "end_turn";
  events.push({ type: "message_delta", delta: { stop_reason }, usage: { output_tokens: 20 } });
  return [...events, { type: "message_stop" }];
}

function answer(body: Fields): Response {
  const stream = framed(eventsOf(answerTo(body)));
  if (body.stream === true) return inPieces(stream, () => 40);
  const message = messageOfStream(stream);
  return Response.json({ id: "msg_1", type: "message", role: "assistant", model: "m", ...message });
}

/** The bodies of the whole conversation, as OpenAI's SDK has the gateway send them. */
async function throughGateway(isStreamed: boolean): Promise<Fields[]> {
  const { gateway, seen } = anthropic;
  const client = new OpenAI({ baseURL: `${gateway.baseUrl}/v1`, apiKey: gateway.secretKey });
  const before = seen.length;
  const messages: Fields[] = [{ role: "system", content: SYSTEM }];
  for (const question of QUESTIONS) {
    messages.push({ role: "user", content: question });
    for (;;) {
      const said = await ask(client, messages, isStreamed);
      messages.push(said);
      const calls = (said.tool_calls ?? []) as OpenAI.ChatCompletionMessageFunctionToolCall[];
      for (const { id, function: called } of calls) {
        const { at } = JSON.parse(called.arguments);
        messages.push({ role: "tool", tool_call_id: id, content: resultOf(at) });
      }
      if (calls.length === 0) break;
    }
  }
  return seen.slice(before).map(({ body }) => body);
}

/** The assistant's message; the details of a stream are sent back in the pieces in which they came. */
async function ask(client: OpenAI, messages: Fields[], isStreamed: boolean): Promise<Fields> {
  const request = {
    model: BUDGET,
    messages: messages as never,
    max_completion_tokens: 8_000,
    reasoning: { max_tokens: 2_000 },
    tools: [{ type: "function" as const, function: { name: "look", parameters: PARAMETERS } }],
  };
  if (!isStreamed) {
    const { choices } = await client.chat.completions.create(request);
    return choices[0]!.message as unknown as Fields;
  }
  const stream = client.chat.completions.stream({ ...request, stream: true });
  const reasoning_details: unknown[] = [];
  stream.on("chunk", ({ choices }) => {
    const { delta } = choices[0] ?? {};
    reasoning_details.push(...(((delta as Fields | undefined)?.reasoning_details as []) ?? []));
  });
  const { choices } = await stream.finalChatCompletion();
  return { ...choices[0]!.message, parsed: undefined, reasoning_details } as unknown as Fields;
}

/** The bodies that the `ai` SDK sends itself. */
async function byOwnPackage(): Promise<Fields[]> {
  const { seen, upstreamUrl } = anthropic;
  const before = seen.length;
  const provider = createAnthropic({ baseURL: upstreamUrl, apiKey: UPSTREAM_KEY });
  let messages: ModelMessage[] = [];
  for (const question of QUESTIONS) {
    messages.push({ role: "user", content: question });
    const { responseMessages } = await generateText({
      model: provider("claude-haiku-4-5"),
      instructions: SYSTEM,
      messages,
      // It adds the budget to the limit of the answer, in which Anthropic counts thinking.
      maxOutputTokens: 6_000,
      providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 2_000 } } },
      tools: {
        look: tool({
          inputSchema: jsonSchema<{ at: string }>(PARAMETERS),
          execute: async ({ at }) => resultOf(at),
        }),
      },
      stopWhen: stepCountIs(5),
    });
    messages = [...messages, ...responseMessages];
  }
  return seen.slice(before).map(({ body }) => body);
}

test.each([false, true])(
  "eight requests with tools and thinking are what Anthropic's own package sends (stream %s)",
  async (isStreamed) => {
    anthropic.answerWith(({ body }) => answer(body));
    const own = await byOwnPackage();
    const ours = await throughGateway(isStreamed);
    expect(ours).toHaveLength(8);
    // The package states this default.
    const tool_choice = { type: "auto" };
    const plain = ours.map(({ stream: _, ...body }): Fields => ({ ...body, tool_choice }));
    expect(plain).toEqual(own);
    const last = ours.at(-1)!.messages as { content: Fields[] }[];
    const kinds = last.slice(0, 4).map(({ content }) => content.map(({ type }) => type).join(" "));
    expect(kinds).toEqual([
      "text",
      "thinking text tool_use tool_use",
      "tool_result tool_result",
      "thinking text",
    ]);
  },
);
