import { logprobsOf } from "./logprobs.ts";
import type { PlannedChoice } from "./plan-answer.ts";
import type { usageOf } from "./usage.ts";

/** What every chunk of an answer has in common. */
export interface AnswerHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

/** What an answer holds besides what it says. */
export interface AnswerOptions {
  /** How many likely tokens are told with each one; undefined where no log probabilities are asked for. */
  readonly alternatives: number | undefined;
}

type Usage = ReturnType<typeof usageOf>;

/** One event of a stream: a chunk, and whether it carries something that was generated. */
export interface PlannedEvent {
  readonly chunk: unknown;
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
        refusal: null,
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
      finish_reason: choice.finishReason,
    })),
    usage,
  };
}

/**
 * The answer as the chunks of a stream, choice after choice: the role, reasoning and content token by
 * token, tool calls as id and name and then the arguments in pieces, the finish reason; at the end
 * the usage, if given.
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
    const end = { index, delta: {}, logprobs: null, finish_reason: choice.finishReason };
    yield { chunk: { ...shared, choices: [end] }, isToken: false };
  }
  if (usage !== undefined) yield { chunk: { ...shared, choices: [], usage }, isToken: false };
}

interface PlannedDelta {
  readonly delta: unknown;
  readonly isToken: boolean;
  /** The token of content that it brings. */
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
