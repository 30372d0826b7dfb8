import type { LanguageModel } from "ai";
import {
  generateText,
  jsonSchema,
  type ModelMessage,
  stepCountIs,
  streamText,
  type ToolSet,
  tool,
} from "ai";
import OpenAI from "openai";
import type { TestGateway } from "../support/gateway.ts";

/**
 * A conversation of eight answers with tools and thinking, as published SDKs hold it: to each question the model
 * looks at sky and sea at once, and then says something.
 */

type Fields = Record<string, unknown>;

export const ANSWERS = 8;
export const QUESTIONS = ["How are sky and sea?", "And now?", "And the sea?", "Thanks."];
export const SYSTEM = "Look before you speak.";
export const PARAMETERS = {
  type: "object",
  properties: { at: { type: "string" } },
  required: ["at"],
  additionalProperties: false,
} as const;
export const resultOf = (at: unknown) => `${at} is blue`;

type Request = Pick<OpenAI.ChatCompletionCreateParams, "model"> & Fields;

/** By OpenAI's SDK, through the gateway: messages go back as they came. */
export async function holdByOpenAi(
  { baseUrl, secretKey }: TestGateway,
  request: Request,
  isStreamed: boolean,
): Promise<void> {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: secretKey, maxRetries: 0 });
  const messages: Fields[] = [{ role: "system", content: SYSTEM }];
  const tools = [{ type: "function" as const, function: { name: "look", parameters: PARAMETERS } }];
  const asked = { ...request, tools, messages: messages as never };
  for (const question of QUESTIONS) {
    messages.push({ role: "user", content: question });
    for (;;) {
      const said = isStreamed ? await streamed(client, asked) : await whole(client, asked);
      messages.push(said);
      const calls = (said.tool_calls ?? []) as OpenAI.ChatCompletionMessageFunctionToolCall[];
      for (const { id, function: called } of calls) {
        const { at } = JSON.parse(called.arguments);
        messages.push({ role: "tool", tool_call_id: id, content: resultOf(at) });
      }
      if (calls.length === 0) break;
    }
  }
}

type Asked = OpenAI.ChatCompletionCreateParamsNonStreaming;

async function whole(client: OpenAI, asked: Asked): Promise<Fields> {
  const { choices } = await client.chat.completions.create(asked);
  return choices[0]!.message as unknown as Fields;
}

/** The details are sent back in the pieces in which they came. */
async function streamed(client: OpenAI, asked: Asked): Promise<Fields> {
  const stream = client.chat.completions.stream({ ...asked, stream: true });
  const reasoning_details: unknown[] = [];
  stream.on("chunk", ({ choices }) => {
    const { delta } = choices[0] ?? {};
    reasoning_details.push(...(((delta as Fields | undefined)?.reasoning_details as []) ?? []));
  });
  const { choices } = await stream.finalChatCompletion();
  return { ...choices[0]!.message, parsed: undefined, reasoning_details } as unknown as Fields;
}

interface AiRequest {
  readonly model: LanguageModel;
  readonly maxOutputTokens?: number;
  readonly providerOptions?: Parameters<typeof generateText>[0]["providerOptions"];
}

/** By the `ai` SDK. */
export async function holdByAi(request: AiRequest, isStreamed = false): Promise<void> {
  const tools: ToolSet = {
    look: tool({
      inputSchema: jsonSchema<{ at: string }>(PARAMETERS),
      execute: async ({ at }) => resultOf(at),
    }),
  };
  const messages: ModelMessage[] = [];
  for (const question of QUESTIONS) {
    messages.push({ role: "user", content: question });
    const asked = {
      ...request,
      instructions: SYSTEM,
      messages,
      tools,
      stopWhen: stepCountIs(2),
      maxRetries: 0,
    };
    const said = isStreamed ? streamText(asked) : await generateText(asked);
    messages.push(...(await said.responseMessages));
  }
}
