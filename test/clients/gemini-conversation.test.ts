import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, type ModelMessage, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

/**
 * A conversation of eight answers with tools and thoughts, through published SDKs: what Google gets is what it
 * has said before, as its own SDK sends it back (compared with a chat of @google/genai 3.1.0).
 */

type Fields = Record<string, unknown>;
interface Content {
  readonly role: string;
  readonly parts: readonly Fields[];
}
interface Sent {
  readonly systemInstruction: Content;
  readonly contents: readonly Content[];
}

const MODEL = "google/gemini-3.5-flash";
const TURNS = 4;
const USAGE = { promptTokenCount: 10, candidatesTokenCount: 5, thoughtsTokenCount: 3 };

/** The answers: of each turn two parallel calls, then a text. */
const answers: readonly (readonly Fields[])[] = Array.from({ length: TURNS }, (_, turn) => [
  [
    { text: `Turn ${turn}: I look.`, thought: true },
    { functionCall: call(turn, "sky"), thoughtSignature: `c2lnLWNhbGw${turn}` },
    { functionCall: call(turn, "sea") },
  ],
  [
    { text: "I know.", thought: true },
    { text: `Answer ${turn}: “blue”.`, thoughtSignature: `c2lnLXRleHQ${turn}` },
  ],
]).flat();

function call(turn: number, at: string) {
  return { id: `fc-${turn}-${at}`, name: "look", args: { at } };
}

/** Everything that was said when all turns are over. */
const everything: readonly Content[] = Array.from({ length: TURNS }, (_, turn) => [
  { role: "user", parts: [{ text: question(turn) }] },
  { role: "model", parts: answers[2 * turn]! },
  { role: "user", parts: [result(turn, "sky"), result(turn, "sea")] },
  { role: "model", parts: answers[2 * turn + 1]! },
]).flat();

function question(turn: number): string {
  return `Question ${turn}?`;
}

function result(turn: number, at: string): Fields {
  const { id, name } = call(turn, at);
  return { functionResponse: { id, name, response: { colour: `of ${at}` } } };
}

let sent: Sent[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const body = (await request.json()) as Sent;
    const parts = answers[sent.length % answers.length]!;
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
beforeAll(async () => {
  gateway = await startTestGateway({
    environment: {
      GEMINI_API_KEY: "AIzaKeyOfTheConversation01",
      GEMINI_BASE_URL: `http://127.0.0.1:${server.port}/v1beta`,
    },
  });
});
beforeEach(() => {
  sent = [];
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await server.stop(true);
});

const SYSTEM = "Be brief.";
const PARAMETERS = {
  type: "object",
  properties: { at: { type: "string" } },
  required: ["at"],
} as const;

/** Each call brings what was said so far, and nothing else. */
function expectHistory(kept: (content: Content) => Content): void {
  expect(sent).toHaveLength(2 * TURNS);
  sent.forEach(({ systemInstruction, contents }, at) => {
    expect(systemInstruction).toEqual({ role: "user", parts: [{ text: SYSTEM }] });
    expect(contents).toEqual(everything.slice(0, 2 * at + 1).map(kept));
  });
}

test.each([false, true])(
  "by the openai SDK, messages sent back as they came (stream %s)",
  async (stream) => {
    const client = new OpenAI({
      baseURL: `${gateway.baseUrl}/v1`,
      apiKey: gateway.secretKey,
      maxRetries: 0,
    });
    type Message = OpenAI.ChatCompletionMessageParam;
    const messages: Message[] = [{ role: "system", content: SYSTEM }];
    const tools = [
      { type: "function" as const, function: { name: "look", parameters: PARAMETERS } },
    ];
    const request = { model: MODEL, messages, tools, reasoning_effort: "low" as const };
    const ask = async (): Promise<Fields> => {
      if (!stream)
        return { ...(await client.chat.completions.create(request)).choices[0]!.message };
      const chunks = await client.chat.completions.create({ ...request, stream: true });
      const deltas: Fields[] = [];
      for await (const { choices } of chunks)
        for (const { delta } of choices) deltas.push({ ...delta });
      const all = (name: string) => deltas.flatMap((delta) => (delta[name] ?? []) as Fields[]);
      const calls = all("tool_calls");
      return {
        role: "assistant",
        content: deltas.map(({ content }) => content ?? "").join("") || null,
        reasoning_details: all("reasoning_details"),
        ...(calls.length > 0 && { tool_calls: calls }),
      };
    };
    for (let turn = 0; turn < TURNS; turn++) {
      messages.push({ role: "user", content: question(turn) });
      const called = await ask();
      messages.push(called as unknown as Message);
      for (const one of called.tool_calls as { id: string; function: { arguments: string } }[]) {
        const { at } = JSON.parse(one.function.arguments) as { at: string };
        const content = JSON.stringify({ colour: `of ${at}` });
        messages.push({ role: "tool", tool_call_id: one.id, content });
      }
      messages.push((await ask()) as unknown as Message);
    }
    expectHistory((content) => content);
    // The rest of the body, too, is what @google/genai 3.1.0 sends for this.
    const { contents: _, ...rest } = sent[0]!;
    expect(rest as unknown).toEqual({
      systemInstruction: { role: "user", parts: [{ text: SYSTEM }] },
      tools: [{ functionDeclarations: [{ name: "look", parametersJsonSchema: PARAMETERS }] }],
      generationConfig: { thinkingConfig: { includeThoughts: true, thinkingLevel: "LOW" } },
    });
  },
);

test.each([false, true])(
  "by the ai SDK, which keeps signatures of calls alone (stream %s)",
  async (stream) => {
    const provider = createOpenAICompatible({
      name: "gateway",
      baseURL: `${gateway.baseUrl}/v1`,
      apiKey: gateway.secretKey,
      includeUsage: true,
    });
    const look = tool({
      inputSchema: jsonSchema<{ at: string }>(PARAMETERS),
      execute: async ({ at }) => ({ colour: `of ${at}` }),
    });
    const messages: ModelMessage[] = [];
    for (let turn = 0; turn < TURNS; turn++) {
      messages.push({ role: "user", content: question(turn) });
      const request = {
        model: provider(MODEL),
        system: SYSTEM,
        messages,
        tools: { look },
        stopWhen: stepCountIs(2),
        maxRetries: 0,
        providerOptions: { gateway: { reasoningEffort: "low" } },
      };
      const said = stream ? streamText(request) : await generateText(request);
      messages.push(...(await said.responseMessages));
    }
    const isKept = (part: Fields) => part.thought !== true;
    const bare = ({ text }: Fields) => ({ text });
    expectHistory(({ role, parts }) => ({
      role,
      parts: parts.filter(isKept).map((part) => (part.text === undefined ? part : bare(part))),
    }));
  },
);
