import { afterAll, beforeAll, expect, test } from "bun:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { eventsOf } from "../support/anthropic-events.ts";
import { framed, messageOfStream } from "../support/anthropic-recordings.ts";
import {
  type AnthropicGateway,
  BUDGET,
  inPieces,
  startAnthropicGateway,
  UPSTREAM_KEY,
} from "../support/anthropic-upstream.ts";
import { ANSWERS, holdByAi, holdByOpenAi } from "./conversation.ts";

/**
 * A conversation with tools and thinking, by published SDKs through the gateway: what Anthropic gets with each
 * turn is what its own provider package of the `ai` SDK sends for the same conversation.
 */

type Fields = Record<string, unknown>;

let anthropic: AnthropicGateway;
let own: Fields[];
beforeAll(async () => {
  anthropic = await startAnthropicGateway();
  anthropic.answerWith(({ body }) => answer(body));
  own = await sentBy(() => {
    const provider = createAnthropic({ baseURL: anthropic.upstreamUrl, apiKey: UPSTREAM_KEY });
    return holdByAi({
      model: provider("claude-haiku-4-5"),
      // It adds the budget to the limit of the answer, in which Anthropic counts thinking.
      maxOutputTokens: 6_000,
      providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 2_000 } } },
    });
  });
});
afterAll(() => anthropic.stop());

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

function answer(body: Fields): Response {
  const stream = framed(eventsOf(answerTo(body)));
  if (body.stream === true) return inPieces(stream, () => 40);
  const message = messageOfStream(stream);
  return Response.json({ id: "msg_1", type: "message", role: "assistant", model: "m", ...message });
}

/** What Anthropic gets meanwhile. */
async function sentBy(hold: () => Promise<void>): Promise<Fields[]> {
  const before = anthropic.seen.length;
  await hold();
  return anthropic.seen.slice(before).map(({ body }) => body);
}

/** The package states the default choice of tools. */
const plain = (bodies: readonly Fields[]) =>
  bodies.map(({ stream: _, ...body }): Fields => ({ ...body, tool_choice: { type: "auto" } }));

interface Turn {
  readonly role: string;
  readonly content: readonly Fields[];
}

test.each([false, true])(
  "by the openai SDK, requests are those of Anthropic's own package (stream %s)",
  async (isStreamed) => {
    const request = {
      model: BUDGET,
      max_completion_tokens: 8_000,
      reasoning: { max_tokens: 2_000 },
    };
    const ours = await sentBy(() => holdByOpenAi(anthropic.gateway, request, isStreamed));
    expect(ours).toHaveLength(ANSWERS);
    expect(plain(ours)).toEqual(own);
    const turns = (ours.at(-1)!.messages as Turn[]).slice(0, 4);
    expect(turns.map(({ content }) => content.map(({ type }) => type).join(" "))).toEqual([
      "text",
      "thinking text tool_use tool_use",
      "tool_result tool_result",
      "thinking text",
    ]);
  },
);

test.each([false, true])(
  "by the ai SDK, which keeps thinking with calls alone, they are otherwise the same (stream %s)",
  async (isStreamed) => {
    const { baseUrl, secretKey } = anthropic.gateway;
    const provider = createOpenAICompatible({
      name: "gateway",
      baseURL: `${baseUrl}/v1`,
      apiKey: secretKey,
      includeUsage: true,
    });
    const request = {
      model: provider(BUDGET),
      maxOutputTokens: 8_000,
      providerOptions: { gateway: { reasoning: { max_tokens: 2_000 } } },
    };
    const ours = await sentBy(() => holdByAi(request, isStreamed));
    const wanted = own.map((body) => ({
      ...body,
      messages: (body.messages as Turn[]).map(({ content, ...turn }) => {
        const calls = content.some(({ type }) => type === "tool_use");
        return { ...turn, content: content.filter(({ type }) => calls || type !== "thinking") };
      }),
    }));
    expect(plain(ours)).toEqual(wanted);
  },
);
