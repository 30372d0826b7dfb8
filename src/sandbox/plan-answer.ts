import { BodyRender, type ChatRequestFields } from "../providers/chat-body.ts";
import { requestedAlternatives, usageOf } from "./answer-shape.ts";
import {
  parseRequest,
  type SandboxMessage,
  type SandboxRequest,
  type SandboxTool,
} from "./request.ts";
import { argumentsOf, exampleBudget, exampleOf } from "./schema-example.ts";
import { splitTokens } from "./tokens.ts";
import { type LearnedAnswer, LearnedAnswers } from "./tuning/learned-answers.ts";

/** Highest number to count to: no answer has tokens for more. */
const MAX_COUNT = 16_384;

const STATEMENT =
  "This is the sandbox of the gateway, not a language model. It repeats what it is told, " +
  'counts when asked to ("count to 100"), calls the tools it is offered with arguments that ' +
  "satisfy their schemas, and obeys response formats. The same request always gets the same answer.";

const SENTENCES = [
  "The last message states the request.",
  " It is repeated, counted or passed to a tool by a fixed rule.",
  " Nothing is looked up and nothing is made up.",
  " The same request always gives the same answer.",
];
const REFUSAL = "The sandbox refuses this request: that is what this model is for.";
const SENTENCES_OF_EFFORT: Readonly<Record<string, number>> = {
  none: 0,
  minimal: 1,
  low: 1,
  medium: 2,
  high: 3,
};

/** Number of characters of the user's message that are searched for names of tools. */
const MAX_SEARCHED_CHARACTERS = 65_536;
/** Maximum number of tools per answer, because creating their arguments takes time. */
const MAX_CALLED_TOOLS = 16;

interface PlannedToolCall {
  readonly id: string;
  readonly name: string;
  readonly argumentTokens: readonly string[];
}

interface PlannedAnswer {
  readonly contentTokens: readonly string[] | null;
  readonly refusalTokens: readonly string[];
  readonly toolCalls: readonly Omit<PlannedToolCall, "id">[];
  readonly finishReason: PlannedChoice["finishReason"];
  readonly stopSequence?: string | undefined;
}

/** How a model answers: plainly, with reasoning even if the request asks for none, or with a refusal. */
export type AnswerManner = "plain" | "reasoning" | "refusal";

/** One choice of an answer, split into the tokens of a stream. */
export interface PlannedChoice {
  readonly reasoningTokens: readonly string[];
  readonly showsReasoning: boolean;
  /** Tokens of the text. Null if the answer calls tools or is a refusal. */
  readonly contentTokens: readonly string[] | null;
  readonly refusalTokens: readonly string[];
  readonly toolCalls: readonly PlannedToolCall[];
  readonly finishReason: "stop" | "length" | "tool_calls" | "content_filter";
  /** The stop sequence that ended the answer. */
  readonly stopSequence?: string | undefined;
}

/** A whole answer and its presentation. */
export interface SandboxAnswer {
  readonly choices: readonly PlannedChoice[];
  readonly usage: ReturnType<typeof usageOf>;
  readonly includeUsage: boolean;
  /** Number of likely tokens to report: see AnswerOptions. */
  readonly alternatives: number | undefined;
}

interface PlanOptions {
  /** The answers that the tuned model has learned. */
  readonly learned: readonly LearnedAnswer[] | undefined;
  readonly manner: AnswerManner;
}

/** Plans the answer to a request. Throws ProviderFailure for a request that the sandbox cannot answer. */
export const sandboxPlan = new BodyRender(
  import.meta.url,
  (body, { learned, manner }: PlanOptions): SandboxAnswer =>
    planAnswer(body, learned && indexOf(learned), manner),
);

/**
 * Cached indexes. Creating an index takes longer than using it, and a tuned model has the same list for all
 * its calls.
 */
const INDEXES = new WeakMap<readonly LearnedAnswer[], LearnedAnswers>();

function indexOf(learned: readonly LearnedAnswer[]): LearnedAnswers {
  let index = INDEXES.get(learned);
  if (index === undefined) {
    index = new LearnedAnswers(learned);
    INDEXES.set(learned, index);
  }
  return index;
}

function planAnswer(
  body: ChatRequestFields,
  learned: LearnedAnswers | undefined,
  manner: AnswerManner,
): SandboxAnswer {
  const request = parseRequest(body);
  const say = (messages: readonly SandboxMessage[]) => learnedText(learned, messages);
  const choices = planChoices(request, body, say, manner);
  return {
    choices,
    usage: usageOf(request, choices),
    includeUsage: request.includeUsage,
    alternatives: requestedAlternatives(body),
  };
}

/** Returns the text that answers a conversation. */
type Say = (messages: readonly SandboxMessage[]) => string;

/**
 * Plans a whole answer before it is sent. `max_tokens` covers reasoning, then content or tool calls. The
 * content ends before the first occurrence of a stop sequence.
 */
function planChoices(
  request: SandboxRequest,
  body: ChatRequestFields,
  say: Say,
  manner: AnswerManner,
): PlannedChoice[] {
  const reasoning = reasoningFor(body, manner === "reasoning");
  const reasoningTokens = splitTokens(reasoning.text, request.maxTokens);
  const tokensLeft = request.maxTokens - reasoningTokens.length;
  const shared = { reasoningTokens, showsReasoning: reasoning.shown };
  const wasCut = isCut(reasoning, reasoningTokens);
  const plan = wasCut
    ? ({ ...NOTHING, contentTokens: [], finishReason: "length" } as const)
    : manner === "refusal"
      ? plannedRefusal(tokensLeft)
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

const NOTHING = { contentTokens: null, refusalTokens: [], toolCalls: [] } as const;

function plannedRefusal(tokensLeft: number): PlannedAnswer {
  const refusalTokens = splitTokens(REFUSAL, tokensLeft);
  return { ...NOTHING, refusalTokens, finishReason: "content_filter" };
}

/** Plans the answer of all choices, which differ only in the ids of their calls. */
function plannedAnswer(request: SandboxRequest, say: Say, tokensLeft: number): PlannedAnswer {
  const calls = toolCallsFor(request);
  return calls.length > 0
    ? { ...NOTHING, ...plannedCalls(calls, tokensLeft) }
    : { ...NOTHING, ...plannedContent(request, say, tokensLeft) };
}

function isCut(reasoning: Reasoning, tokens: readonly string[]): boolean {
  return tokens.reduce((length, token) => length + token.length, 0) < reasoning.text.length;
}

function plannedContent(
  request: SandboxRequest,
  say: Say,
  tokensLeft: number,
): Pick<PlannedChoice, "contentTokens" | "finishReason" | "stopSequence"> {
  const whole = contentOf(request, say);
  const [first] = request.stop
    .map((sequence) => ({ sequence, end: whole.indexOf(sequence) }))
    .filter(({ end }) => end >= 0)
    .sort((left, right) => left.end - right.end);
  const tokens = splitTokens(whole.slice(0, first?.end), tokensLeft + 1);
  if (tokens.length <= tokensLeft) {
    return { contentTokens: tokens, finishReason: "stop", stopSequence: first?.sequence };
  }
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
  calls: readonly SandboxToolCall[],
  tokensLeft: number,
): Pick<PlannedAnswer, "toolCalls" | "finishReason"> {
  const toolCalls: Omit<PlannedToolCall, "id">[] = [];
  let remaining = tokensLeft;
  for (const call of calls) {
    // The name counts as one token, so that a call without arguments has a price.
    const tokens = splitTokens(call.arguments, remaining);
    if (remaining < 1 || 1 + tokens.length > remaining) {
      if (remaining >= 1)
        toolCalls.push({ ...call, argumentTokens: tokens.slice(0, remaining - 1) });
      return { toolCalls, finishReason: "length" };
    }
    toolCalls.push({ ...call, argumentTokens: tokens });
    remaining -= 1 + tokens.length;
  }
  return { toolCalls, finishReason: "tool_calls" };
}

interface SandboxToolCall {
  readonly name: string;
  /** JSON that satisfies the tool's schema. */
  readonly arguments: string;
}

/**
 * Returns the tool calls that answer a request. They are the same in all its choices.
 *
 * `tool_choice` decides whether there are any: a named function is called, `required` calls at least one, and
 * `auto` calls only if no tool message follows the last user message. The last user message decides which
 * tools are called: those that it names, in the order offered, or else the first tool. With
 * `parallel_tool_calls` false only one is called.
 */
function toolCallsFor(request: SandboxRequest): SandboxToolCall[] {
  const budget = exampleBudget();
  return chosenTools(request).map((tool) => ({
    name: tool.name,
    arguments: JSON.stringify(argumentsOf(tool.parameters, budget)),
  }));
}

function chosenTools(request: SandboxRequest): SandboxTool[] {
  const { tools, toolChoice, messages } = request;
  if (toolChoice.kind === "none" || tools.length === 0) return [];
  if (toolChoice.kind === "function") {
    return tools.filter((tool) => tool.name === toolChoice.name).slice(0, 1);
  }
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  const isAnswered = messages.slice(lastUser + 1).some((message) => message.role === "tool");
  if (toolChoice.kind === "auto" && isAnswered) return [];
  const userText =
    lastUser === -1 ? "" : messages[lastUser]!.text.slice(0, MAX_SEARCHED_CHARACTERS);
  const mentioned = tools.filter((tool) => userText.includes(tool.name));
  if (mentioned.length === 0) return tools.slice(0, 1);
  return mentioned.slice(0, request.parallelToolCalls ? MAX_CALLED_TOOLS : 1);
}

interface Reasoning {
  readonly text: string;
  /** False for reasoning that is charged but not shown. */
  readonly shown: boolean;
}

/**
 * Returns the reasoning that a request asks for by `reasoning: {effort | max_tokens | enabled, exclude}`,
 * `reasoning_effort` or `include_reasoning`, or that its model has `always`. More effort gives more
 * sentences.
 */
function reasoningFor(body: ChatRequestFields, always: boolean): Reasoning {
  const { reasoning, include_reasoning: includeReasoning } = body;
  const options: Readonly<Record<string, unknown>> =
    typeof reasoning === "object" && reasoning !== null ? { ...reasoning } : {};
  const effort = options.effort ?? body.reasoning_effort;
  const shown = options.exclude !== true && includeReasoning !== false;
  if (typeof effort === "string") {
    const sentences = SENTENCES_OF_EFFORT[effort] ?? SENTENCES.length;
    return { text: SENTENCES.slice(0, sentences).join(""), shown };
  }
  const isRequested =
    always ||
    includeReasoning === true ||
    options.enabled === true ||
    typeof options.max_tokens === "number";
  return { text: isRequested ? SENTENCES.slice(0, 2).join("") : "", shown };
}

/**
 * Returns the text that answers a conversation. That is the results of tools after the last user message, or
 * a count if the user asked for one ("count to 100"), or else the user's text.
 */
function answerText(messages: readonly SandboxMessage[]): string {
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  const toolResults = messages.slice(lastUser + 1).filter((message) => message.role === "tool");
  if (toolResults.length > 0) {
    return toolResults.map((result) => `The tool said: ${result.text}`).join("\n");
  }
  const userText = lastUser === -1 ? "" : messages[lastUser]!.text;
  const count = /\bcount (?:up )?to (\d{1,9})\b/i.exec(userText);
  if (count !== null) return countedTo(Number(count[1]));
  return userText === ""
    ? `You said nothing.\n\n${STATEMENT}`
    : `You said: ${userText}\n\n${STATEMENT}`;
}

/** Returns the learned answer to the last user message, or else the answer of the base model. */
function learnedText(
  learned: LearnedAnswers | undefined,
  messages: readonly SandboxMessage[],
): string {
  const userText = messages.findLast((message) => message.role === "user")?.text ?? "";
  return learned?.answerTo(userText) ?? answerText(messages);
}

function countedTo(last: number): string {
  const numbers = Array.from({ length: Math.min(last, MAX_COUNT) }, (_, index) => index + 1);
  return `${numbers.join(", ")}.`;
}
