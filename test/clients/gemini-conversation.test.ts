import { afterAll, beforeAll, expect, test } from "bun:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { GoogleGenAI, type ThinkingLevel } from "@google/genai";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import {
  ANSWERS,
  holdByAi,
  holdByOpenAi,
  PARAMETERS,
  QUESTIONS,
  resultOf,
  SYSTEM,
} from "./conversation.ts";

/**
 * A conversation with tools and thoughts, by published SDKs through the gateway: what Google gets with each turn
 * is what a chat of its own SDK sends for the same conversation.
 */

type Fields = Record<string, unknown>;
interface Content {
  readonly role: string;
  readonly parts: readonly Fields[];
}
interface Sent {
  readonly contents: readonly Content[];
}

const MODEL = "gemini-3.5-flash";
const USAGE = { promptTokenCount: 10, candidatesTokenCount: 5, thoughtsTokenCount: 3 };

/** Asks for two things at once and says what it saw, each time behind a thought. */
function answerTo({ contents }: Sent): Fields[] {
  const turn = contents.length;
  const call = (at: string) => ({ id: `fc-${turn}-${at}`, name: "look", args: { at } });
  return contents.at(-1)!.parts.some(({ functionResponse }) => functionResponse !== undefined)
    ? [
        { text: "I know.", thought: true },
        { text: `Answer ${turn}: “blue”.`, thoughtSignature: btoa(`text ${turn}`) },
      ]
    : [
        { text: `Turn ${turn}: I look.`, thought: true },
        { functionCall: call("sky"), thoughtSignature: btoa(`call ${turn}`) },
        { functionCall: call("sea") },
      ];
}

let sent: Sent[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const body = (await request.json()) as Sent;
    const parts = answerTo(body);
    sent.push(body);
    const response = (said: readonly Fields[], finishReason?: string) => ({
      candidates: [
        { content: { role: "model", parts: said }, ...(finishReason && { finishReason }) },
      ],
      usageMetadata: USAGE,
    });
    if (!request.url.includes(":stream")) return Response.json(response(parts, "STOP"));
    const events = [...parts.map((part) => response([part])), response([], "STOP")];
    const text = events.map((event) => `data: ${JSON.stringify(event)}\r\n\r\n`).join("");
    return new Response(text, { headers: { "content-type": "text/event-stream" } });
  },
});

let gateway: TestGateway;
let own: Sent[];
beforeAll(async () => {
  gateway = await startTestGateway({
    environment: {
      GEMINI_API_KEY: "AIzaKeyOfTheConversation01",
      GEMINI_BASE_URL: `http://127.0.0.1:${server.port}/v1beta`,
    },
  });
  own = await sentBy(holdByOwnSdk);
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await server.stop(true);
});

/** What Google gets meanwhile. */
async function sentBy(hold: () => Promise<void>): Promise<Sent[]> {
  sent = [];
  await hold();
  return sent;
}

async function holdByOwnSdk(): Promise<void> {
  const baseUrl = `http://127.0.0.1:${server.port}`;
  const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl, apiVersion: "v1beta" } });
  const chat = client.chats.create({
    model: MODEL,
    config: {
      systemInstruction: SYSTEM,
      tools: [{ functionDeclarations: [{ name: "look", parametersJsonSchema: PARAMETERS }] }],
      thinkingConfig: { includeThoughts: true, thinkingLevel: "LOW" as ThinkingLevel },
    },
  });
  for (const question of QUESTIONS) {
    const { functionCalls = [] } = await chat.sendMessage({ message: question });
    const message = functionCalls.map(({ id = "", name = "", args }) => ({
      functionResponse: { id, name, response: { output: resultOf(args?.at) } },
    }));
    await chat.sendMessage({ message });
  }
}

test.each([false, true])(
  "by the openai SDK, requests are those of Google's own SDK (stream %s)",
  async (isStreamed) => {
    const request = { model: `google/${MODEL}`, reasoning_effort: "low" };
    const ours = await sentBy(() => holdByOpenAi(gateway, request, isStreamed));
    expect(ours).toHaveLength(ANSWERS);
    expect(ours).toEqual(own);
  },
);

test.each([false, true])(
  "by the ai SDK, which keeps signatures of calls alone, they are otherwise the same (stream %s)",
  async (isStreamed) => {
    const provider = createOpenAICompatible({
      name: "gateway",
      baseURL: `${gateway.baseUrl}/v1`,
      apiKey: gateway.secretKey,
      includeUsage: true,
    });
    const request = {
      model: provider(`google/${MODEL}`),
      providerOptions: { gateway: { reasoningEffort: "low" } },
    };
    const ours = await sentBy(() => holdByAi(request, isStreamed));
    const bare = (part: Fields) => (part.text === undefined ? part : { text: part.text });
    const wanted = own.map((body) => ({
      ...body,
      // The SDK states the default.
      toolConfig: { functionCallingConfig: { mode: "AUTO" } },
      contents: body.contents.map(({ parts, ...content }) => ({
        ...content,
        parts: parts.filter(({ thought }) => thought !== true).map(bare),
      })),
    }));
    expect(ours).toEqual(wanted as Sent[]);
  },
);
