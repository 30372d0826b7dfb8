import type { ChatRequestFields } from "../providers/chat-body.ts";
import type { PlannedChoice } from "./plan-answer.ts";
import type { SandboxRequest } from "./request.ts";
import { countTokens } from "./tokens.ts";

/** What a message costs besides its text. */
export const MESSAGE_OVERHEAD_TOKENS = 3;
/** What an image, audio or file part costs, whatever its size. */
export const MEDIA_PART_TOKENS = 8;
/** OpenAI's limit. */
const MAX_ALTERNATIVES = 20;
const UTF8 = new TextEncoder();

/** The members that all chunks of an answer share. */
export interface AnswerHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

export interface AnswerOptions {
  /** The number of likely tokens to report with each one; undefined if no log probabilities were requested. */
  readonly alternatives: number | undefined;
}

type Usage = ReturnType<typeof usageOf>;

/** One event of a stream. */
export interface PlannedEvent {
  readonly chunk: unknown;
  /** Whether the chunk carries a generated token. */
  readonly isToken: boolean;
}

/** The answer as OpenAI's chat completion. */
export function asCompletion(
  head: AnswerHead,
  choices: readonly PlannedChoice[],
  usage: Usage,
  { alternatives }: AnswerOptions,
) {
  return {
    ...head,
    object: "chat.completion",
    choices: choices.map((choice, index) => ({
      index,
      message: {
        role: "assistant",
        content: choice.contentTokens?.join("") ?? null,
        refusal: choice.refusalTokens.length === 0 ? null : choice.refusalTokens.join(""),
        ...(reasoningIsShown(choice) ? { reasoning: choice.reasoningTokens.join("") } : {}),
        ...(choice.toolCalls.length === 0
          ? {}
          : {
              tool_calls: choice.toolCalls.map((call) => ({
                id: call.id,
                type: "function",
                function: { name: call.name, arguments: call.argumentTokens.join("") },
              })),
            }),
      },
      logprobs: alternatives === undefined ? null : logprobsOf(choice.contentTokens, alternatives),
      ...endOf(choice),
    })),
    usage,
  };
}

/**
 * The answer as the chunks of a stream, choice after choice: the role, the reasoning, content or refusal token
 * by token, of each tool call its id and name and then its arguments in pieces, and the finish reason. The
 * usage, if given, comes last.
 */
export function* asEvents(
  head: AnswerHead,
  choices: readonly PlannedChoice[],
  usage: Usage | undefined,
  { alternatives }: AnswerOptions,
): Generator<PlannedEvent> {
  const shared = { ...head, object: "chat.completion.chunk" };
  for (const [index, choice] of choices.entries()) {
    for (const { delta, isToken, content } of deltasOf(choice)) {
      const logprobs =
        alternatives === undefined || content === undefined
          ? null
          : logprobsOf([content], alternatives);
      const chunk = { ...shared, choices: [{ index, delta, logprobs, finish_reason: null }] };
      yield { chunk, isToken };
    }
    const end = { index, delta: {}, logprobs: null, ...endOf(choice) };
    yield { chunk: { ...shared, choices: [end] }, isToken: false };
  }
  if (usage !== undefined) yield { chunk: { ...shared, choices: [], usage }, isToken: false };
}

/** The sequence that ended it stands where vLLM tells it. */
function endOf({ finishReason, stopSequence }: PlannedChoice) {
  const end = { finish_reason: finishReason };
  return stopSequence === undefined ? end : { ...end, stop_reason: stopSequence };
}

interface PlannedDelta {
  readonly delta: unknown;
  readonly isToken: boolean;
  /** The token of content in the delta. */
  readonly content?: string;
}

function* deltasOf(choice: PlannedChoice): Generator<PlannedDelta> {
  const content = choice.contentTokens === null ? null : "";
  yield { delta: { role: "assistant", content }, isToken: false };
  if (reasoningIsShown(choice)) {
    for (const reasoning of choice.reasoningTokens) yield { delta: { reasoning }, isToken: true };
  }
  for (const token of choice.contentTokens ?? [])
    yield { delta: { content: token }, isToken: true, content: token };
  for (const refusal of choice.refusalTokens) yield { delta: { refusal }, isToken: true };
  for (const [index, call] of choice.toolCalls.entries()) {
    const opening = { name: call.name, arguments: "" };
    const start = { index, id: call.id, type: "function", function: opening };
    yield { delta: { tool_calls: [start] }, isToken: true };
    for (const piece of call.argumentTokens) {
      yield { delta: { tool_calls: [{ index, function: { arguments: piece } }] }, isToken: true };
    }
  }
}

function reasoningIsShown(choice: PlannedChoice): boolean {
  return choice.showsReasoning && choice.reasoningTokens.length > 0;
}

/** The requested number of alternatives for each token; undefined if no log probabilities were requested. */
export function alternativesAsked(body: ChatRequestFields): number | undefined {
  if (body.logprobs !== true) return undefined;
  const { top_logprobs: asked } = body;
  return typeof asked === "number" ? Math.min(Math.max(asked, 0), MAX_ALTERNATIVES) : 0;
}

/**
 * Invented log probabilities in OpenAI's shape: a token gets a probability above one half, computed from its
 * text, so it is the likeliest one; its alternatives share the rest.
 */
function logprobsOf(tokens: readonly string[] | null, alternatives: number) {
  const content = tokens?.map((token) => contentLogprob(token, alternatives)) ?? null;
  return { content, refusal: null };
}

function contentLogprob(token: string, alternatives: number) {
  const probability = 0.5 + (0.49 * Bun.hash.crc32(token)) / 0xffff_ffff;
  const chosen = tokenLogprob(token, probability);
  if (alternatives === 0) return { ...chosen, top_logprobs: [] };
  const others = Array.from({ length: alternatives - 1 }, (_, rank) =>
    tokenLogprob(` alt${rank + 1}`, (1 - probability) / 2 ** (rank + 1)),
  );
  return { ...chosen, top_logprobs: [chosen, ...others] };
}

function tokenLogprob(token: string, probability: number) {
  return { token, logprob: Math.log(probability), bytes: [...UTF8.encode(token)] };
}

/** A shorter prompt is not cached. */
const LEAST_CACHED_TOKENS = 64;

/**
 * Usage in OpenAI's shape, in the tokens of tokens.ts. The prompt is the messages, tool calls and tools. What stands
 * before the last answer of the conversation counts as read from a cache, whether that answer was given here or not, so
 * that the same request has the same usage.
 */
export function usageOf(request: SandboxRequest, choices: readonly PlannedChoice[]) {
  const lastAnswer = request.messages.findLastIndex(({ role }) => role === "assistant");
  let promptTokens = countTokens(request.toolsJson);
  let cachedTokens = 0;
  for (const [at, message] of request.messages.entries()) {
    // Where an earlier answer was given to all before it, that was a prompt already.
    if (at === lastAnswer) cachedTokens = promptTokens;
    promptTokens +=
      MESSAGE_OVERHEAD_TOKENS +
      countTokens(message.text) +
      countTokens(message.toolCallsJson) +
      message.mediaParts * MEDIA_PART_TOKENS;
  }
  if (cachedTokens < LEAST_CACHED_TOKENS) cachedTokens = 0;
  const reasoningTokens = sumOf(choices, (choice) => choice.reasoningTokens.length);
  const answerTokens = sumOf(
    choices,
    (choice) =>
      (choice.contentTokens?.length ?? 0) +
      choice.refusalTokens.length +
      choice.toolCalls.reduce((sum, call) => sum + 1 + call.argumentTokens.length, 0),
  );
  const completionTokens = reasoningTokens + answerTokens;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: reasoningTokens,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

function sumOf<T>(items: readonly T[], amount: (item: T) => number): number {
  return items.reduce((sum, item) => sum + amount(item), 0);
}
