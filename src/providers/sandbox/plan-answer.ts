import type { ChatCall } from "../interface.ts";
import { learnedText } from "./answer-text.ts";
import { alternativesAsked } from "./logprobs.ts";
import { type Reasoning, reasoningFor } from "./reasoning.ts";
import { readRequest, type SandboxMessage, type SandboxRequest } from "./request.ts";
import { exampleOf } from "./schema-example.ts";
import { splitTokens } from "./tokens.ts";
import { toolCallsFor } from "./tool-calls.ts";
import type { LearnedAnswers } from "./tuning/learned-answers.ts";
import { usageOf } from "./usage.ts";

interface PlannedToolCall {
  readonly id: string;
  readonly name: string;
  readonly argumentTokens: readonly string[];
}

interface PlannedAnswer {
  readonly contentTokens: readonly string[] | null;
  readonly toolCalls: readonly Omit<PlannedToolCall, "id">[];
  readonly finishReason: PlannedChoice["finishReason"];
}

/** One choice of an answer, cut into the tokens it is streamed in. */
export interface PlannedChoice {
  readonly reasoningTokens: readonly string[];
  readonly showsReasoning: boolean;
  /** Null when tools are called instead. */
  readonly contentTokens: readonly string[] | null;
  readonly toolCalls: readonly PlannedToolCall[];
  readonly finishReason: "stop" | "length" | "tool_calls";
}

/** A whole answer, with what it is told with. */
export interface SandboxAnswer {
  readonly choices: readonly PlannedChoice[];
  readonly usage: ReturnType<typeof usageOf>;
  readonly includeUsage: boolean;
  /** How many likely tokens are told with each one; undefined where no log probabilities are asked for. */
  readonly alternatives: number | undefined;
}

/** Throws ProviderFailure where the request asks for what cannot be. */
export function planAnswer(
  body: ChatCall["body"],
  learned: LearnedAnswers | undefined,
): SandboxAnswer {
  const request = readRequest(body);
  const choices = planChoices(request, body, (messages) => learnedText(learned, messages));
  return {
    choices,
    usage: usageOf(request, choices),
    includeUsage: request.includeUsage,
    alternatives: alternativesAsked(body),
  };
}

/** The text that answers a conversation. */
export type Say = (messages: readonly SandboxMessage[]) => string;

/**
 * Decides a whole answer before anything of it is sent. `max_tokens` covers reasoning, then content or
 * tool calls; a stop sequence ends content just before its first occurrence.
 */
export function planChoices(
  request: SandboxRequest,
  body: ChatCall["body"],
  say: Say,
): PlannedChoice[] {
  const reasoning = reasoningFor(body);
  const reasoningTokens = splitTokens(reasoning.text, request.maxTokens);
  const tokensLeft = request.maxTokens - reasoningTokens.length;
  const shared = { reasoningTokens, showsReasoning: reasoning.shown };
  const wasCut = isCut(reasoning, reasoningTokens);
  const plan = wasCut
    ? ({ contentTokens: [], toolCalls: [], finishReason: "length" } as const)
    : plannedAnswer(request, say, tokensLeft);
  return Array.from({ length: request.choices }, (_, choiceIndex) => ({
    ...shared,
    ...plan,
    toolCalls: plan.toolCalls.map((call, index) => ({
      id: `call_${request.messages.length}_${choiceIndex}_${index}`,
      ...call,
    })),
  }));
}

/** Made once for all choices, which differ in the ids of their calls alone. */
function plannedAnswer(request: SandboxRequest, say: Say, tokensLeft: number): PlannedAnswer {
  const calls = toolCallsFor(request);
  return calls.length > 0
    ? { contentTokens: null, ...plannedCalls(calls, tokensLeft) }
    : { toolCalls: [], ...plannedContent(request, say, tokensLeft) };
}

function isCut(reasoning: Reasoning, tokens: readonly string[]): boolean {
  return tokens.reduce((length, token) => length + token.length, 0) < reasoning.text.length;
}

function plannedContent(
  request: SandboxRequest,
  say: Say,
  tokensLeft: number,
): Pick<PlannedChoice, "contentTokens" | "finishReason"> {
  const whole = contentOf(request, say);
  const ends = request.stop.map((sequence) => whole.indexOf(sequence)).filter((end) => end >= 0);
  const content = ends.length === 0 ? whole : whole.slice(0, Math.min(...ends));
  const tokens = splitTokens(content, tokensLeft + 1);
  if (tokens.length <= tokensLeft) return { contentTokens: tokens, finishReason: "stop" };
  return { contentTokens: tokens.slice(0, tokensLeft), finishReason: "length" };
}

function contentOf(request: SandboxRequest, say: Say): string {
  const text = say(request.messages);
  if (!request.wantsJson) return text;
  return JSON.stringify(
    request.jsonSchema === undefined ? { answer: text } : exampleOf(request.jsonSchema),
  );
}

function plannedCalls(
  calls: ReturnType<typeof toolCallsFor>,
  tokensLeft: number,
): Pick<PlannedAnswer, "toolCalls" | "finishReason"> {
  const toolCalls: Omit<PlannedToolCall, "id">[] = [];
  let left = tokensLeft;
  for (const call of calls) {
    // A call's name counts as one token, so that a call without arguments has a price too.
    const tokens = splitTokens(call.arguments, left);
    if (left < 1 || 1 + tokens.length > left) {
      if (left >= 1) toolCalls.push({ ...call, argumentTokens: tokens.slice(0, left - 1) });
      return { toolCalls, finishReason: "length" };
    }
    toolCalls.push({ ...call, argumentTokens: tokens });
    left -= 1 + tokens.length;
  }
  return { toolCalls, finishReason: "tool_calls" };
}
