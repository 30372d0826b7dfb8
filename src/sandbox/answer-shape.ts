import type { ChatRequestFields } from "../providers/chat-body.ts";
import type { PlannedChoice } from "./plan-answer.ts";
import type { SandboxRequest } from "./request.ts";
import { countTokens } from "./tokens.ts";

/** Tokens of a message in addition to its text. */
export const MESSAGE_OVERHEAD_TOKENS = 3;
/** Tokens of an image, audio or file part, whatever its size. */
export const MEDIA_PART_TOKENS = 8;
/** Maximum number of alternatives per token, as at OpenAI. */
const MAX_ALTERNATIVES = 20;
const UTF8 = new TextEncoder();

/** The members that all chunks of an answer share. */
export interface AnswerHead {
  readonly id: string;
  /** Time of creation, in Unix seconds. */
  readonly created: number;
  readonly model: string;
}

export interface AnswerOptions {
  /** Number of likely tokens to report with each token. Undefined if no log probabilities were requested. */
  readonly alternatives: number | undefined;
}

type Usage = ReturnType<typeof usageOf>;

/** One event of a stream. */
export interface PlannedEvent {
  readonly chunk: unknown;
  /** Whether the chunk carries a generated token. */
  readonly isToken: boolean;
}

/** Returns the answer as a chat completion in OpenAI's form. */
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
 * Yields the answer as the chunks of a stream, one choice after the other. A choice has its role, the
 * reasoning, and content or refusal token by token. Each tool call has its id and name and then its arguments
 * in pieces. The finish reason ends the choice. The usage, if given, comes last.
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

/** Returns the finish reason. The stop sequence that ended the answer is in `stop_reason`, as in vLLM. */
function endOf({ finishReason, stopSequence }: PlannedChoice) {
  const end = { finish_reason: finishReason };
  return stopSequence === undefined ? end : { ...end, stop_reason: stopSequence };
}

interface PlannedDelta {
  readonly delta: unknown;
  readonly isToken: boolean;
  /** The content token in the delta. */
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

/**
 * Returns the requested number of alternatives for each token. Returns undefined if no log probabilities were
 * requested.
 */
export function requestedAlternatives(body: ChatRequestFields): number | undefined {
  if (body.logprobs !== true) return undefined;
  const { top_logprobs: requested } = body;
  return typeof requested === "number" ? Math.min(Math.max(requested, 0), MAX_ALTERNATIVES) : 0;
}

/**
 * Returns invented log probabilities in OpenAI's form. A token gets a probability above one half, computed
 * from its text, so it is the most likely one. Its alternatives share the rest.
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

/** Smallest prompt that counts as cached, in tokens. */
const MIN_CACHED_TOKENS = 64;

/**
 * Returns usage in OpenAI's form, counted in the tokens of tokens.ts. The prompt consists of the messages,
 * tool calls and tools. The part before the last answer of the conversation counts as read from a cache, even
 * if another provider gave that answer. The same request therefore has the same usage.
 */
export function usageOf(request: SandboxRequest, choices: readonly PlannedChoice[]) {
  const lastAnswer = request.messages.findLastIndex(({ role }) => role === "assistant");
  let promptTokens = countTokens(request.toolsJson);
  let cachedTokens = 0;
  for (const [index, message] of request.messages.entries()) {
    // The part before the last answer was the prompt of an earlier request.
    if (index === lastAnswer) cachedTokens = promptTokens;
    promptTokens +=
      MESSAGE_OVERHEAD_TOKENS +
      countTokens(message.text) +
      countTokens(message.toolCallsJson) +
      message.mediaParts * MEDIA_PART_TOKENS;
  }
  if (cachedTokens < MIN_CACHED_TOKENS) cachedTokens = 0;
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
