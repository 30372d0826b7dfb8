import { type Clock, VirtualClock } from "../../src/lib/clock.ts";
import type { ChatAnswer } from "../../src/providers/interface.ts";
import { OpenAiCompletion } from "../../src/providers/openai/chat/chat-answers.ts";
import { createSandboxProvider } from "../../src/sandbox/chat-provider.ts";
import { callOf, eventsOf, textOf } from "./openai-adapter.ts";

export interface SandboxCompletion {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: {
    index: number;
    message: {
      role: string;
      content: string | null;
      refusal: string | null;
      reasoning?: string;
      tool_calls?: { id: string; type: string; function: { name: string; arguments: string } }[];
    };
    finish_reason: string;
  }[];
  usage: {
    prompt_tokens: number;
    completion_tokens: number;
    total_tokens: number;
    completion_tokens_details: { reasoning_tokens: number };
  };
}

export interface SandboxChunk {
  choices: {
    index: number;
    delta: {
      role?: string;
      content?: string | null;
      refusal?: string;
      reasoning?: string;
      tool_calls?: {
        index: number;
        id?: string;
        function: { name?: string; arguments: string };
      }[];
    };
    finish_reason: string | null;
  }[];
  usage?: SandboxCompletion["usage"];
}

export function sandboxCall(
  body: Record<string, unknown>,
  options: { model?: string; stream?: boolean; clock?: Clock; signal?: AbortSignal } = {},
): Promise<ChatAnswer> {
  const { model = "chat", clock = new VirtualClock(), ...rest } = options;
  return createSandboxProvider({ clock }).chat(callOf(model, { ...rest, body }));
}

export async function complete(
  body: Record<string, unknown>,
  options: { model?: string; clock?: Clock } = {},
): Promise<SandboxCompletion> {
  const answer = await sandboxCall(body, options);
  if (!(answer instanceof OpenAiCompletion)) throw new Error("the answer is a stream");
  return JSON.parse(JSON.stringify(answer.completion));
}

export async function streamed(
  body: Record<string, unknown>,
  options: { model?: string; clock?: Clock } = {},
): Promise<SandboxChunk[]> {
  const answer = await sandboxCall(body, { ...options, stream: true });
  return eventsOf(await textOf(answer)) as unknown as SandboxChunk[];
}

/** What a client makes of a stream: the choices of the completion, put together again. */
export function assembled(chunks: readonly SandboxChunk[]): unknown[] {
  const choices: SandboxCompletion["choices"] = [];
  for (const { index, delta, finish_reason } of chunks.flatMap((chunk) => chunk.choices)) {
    choices[index] ??= {
      index,
      message: { role: "", content: null, refusal: null },
      finish_reason: "",
    };
    const choice = choices[index];
    const { message } = choice;
    message.role += delta.role ?? "";
    if (typeof delta.content === "string")
      message.content = (message.content ?? "") + delta.content;
    if (delta.refusal !== undefined) message.refusal = (message.refusal ?? "") + delta.refusal;
    if (delta.reasoning !== undefined) {
      message.reasoning = (message.reasoning ?? "") + delta.reasoning;
    }
    for (const part of delta.tool_calls ?? []) {
      message.tool_calls ??= [];
      message.tool_calls[part.index] ??= {
        id: part.id ?? "",
        type: "function",
        function: { name: part.function.name ?? "", arguments: "" },
      };
      message.tool_calls[part.index]!.function.arguments += part.function.arguments;
    }
    if (finish_reason !== null) choice.finish_reason += finish_reason;
  }
  return choices;
}

/** The choices of a completion without what a stream does not carry. */
export function essentials(completion: SandboxCompletion): unknown[] {
  return completion.choices.map(({ index, message, finish_reason }) => {
    const { role, content, refusal, reasoning, tool_calls } = message;
    return {
      index,
      message: {
        role,
        content,
        refusal,
        ...(reasoning === undefined ? {} : { reasoning }),
        ...(tool_calls === undefined ? {} : { tool_calls }),
      },
      finish_reason,
    };
  });
}

export function user(content: unknown): { role: string; content: unknown } {
  return { role: "user", content };
}

export function tool(name: string, parameters: unknown = { type: "object" }) {
  return { type: "function", function: { name, parameters } };
}
