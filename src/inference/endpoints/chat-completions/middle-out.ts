import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { estimatedTextTokens } from "../../../lib/token-estimate.ts";
import type { RoutePlan } from "../../call/routing/plan-route.ts";
import {
  type ChatMessage,
  type ChatRequest,
  type ContentPart,
  statedOutputLimit,
} from "./request.ts";

/**
 * The transform "middle-out" shortens a prompt that is longer than the model accepts. It removes messages
 * from the middle, which models attend to least, and cuts the message at the edge of the gap in its own
 * middle. Instructions at the beginning and the latest messages stay. A tool call and its results stay or are
 * removed together.
 */

const MIDDLE_OUT = "middle-out";
const TOKENS_AROUND_MESSAGE = 8;
const TOKENS_OF_MEDIUM = 1_000;
/** Minimum tokens of a message that is cut. Shorter pieces are of no use. */
const MIN_CUT_TOKENS = 128;
const GAP = "\n[…]\n";
/**
 * Share of the context length that is reserved for the answer if the request states no limit. The prompt always
 * has at least this share.
 */
const ANSWER_SHARE = 0.25;
/** Maximum share that the instructions have of the tokens for messages. */
const MAX_INSTRUCTIONS_SHARE = 0.5;

/** Throws 400 for an unknown transform. */
export function assertTransforms({ transforms }: ChatRequest): void {
  const unknown = transforms?.findIndex((name) => name !== MIDDLE_OUT) ?? -1;
  if (unknown < 0) return;
  const [param, name] = [
    `transforms.${unknown}`,
    JSON.stringify(transforms![unknown]!.slice(0, 100)),
  ];
  throw new GatewayError("unsupported_parameter", `${param} ${name} is not supported.`, { param });
}

export function usesMiddleOut({ transforms }: ChatRequest): boolean {
  return transforms?.includes(MIDDLE_OUT) === true;
}

/** Returns the estimated prompt tokens, or undefined if the request does not use the transform. */
export function transformedTokens(request: ChatRequest): number | undefined {
  if (!usesMiddleOut(request)) return undefined;
  return tokensOf(request.messages) + tokensAside(request);
}

/**
 * Returns the tokens to which the prompt is cut for a model, or undefined if the prompt is sent complete.
 *
 * @param addition text that the gateway adds to the prompt; it is not cut
 */
export function promptLimit(
  request: ChatRequest,
  tokens: number | undefined,
  { contextLength, maxOutputTokens }: Pick<ModelTerms, "contextLength" | "maxOutputTokens">,
  addition = "",
): number | undefined {
  if (tokens === undefined) return undefined;
  const added = addition === "" ? 0 : estimatedTextTokens(addition);
  const answer =
    statedOutputLimit(request) ?? Math.min(maxOutputTokens, contextLength * ANSWER_SHARE);
  const limit = Math.floor(Math.max(contextLength - answer, contextLength * ANSWER_SHARE)) - added;
  return tokens > limit ? limit : undefined;
}

/**
 * Returns the plan with `transformed`, the candidates whose prompt must be cut. A candidate whose provider
 * counts more tokens is added when it is called.
 */
export function planTransformed(
  request: ChatRequest,
  { transformedTokens }: { readonly transformedTokens?: number | undefined },
  plan: RoutePlan,
): RoutePlan {
  if (transformedTokens === undefined) return plan;
  const transformed = plan.candidates.filter(
    ({ terms }) => promptLimit(request, transformedTokens, terms) !== undefined,
  );
  return { ...plan, transformed: new Set(transformed) };
}

/** A number of tokens in a provider's message. Numbers of one or two digits are never the size of a prompt. */
const COUNT = /\b\d{3,9}\b/g;
/** Factor below the stated counts, because only some of them include the answer. */
const MARGIN = 0.95;
const SHARE_WITHOUT_COUNTS = 0.75;
const [MIN_SHARE, MAX_SHARE] = [0.1, 0.9];

/**
 * Returns the share of a prompt that a provider will accept after it rejected the prompt as too long. Uses
 * the counts in the provider's message: "maximum context length is 8192 tokens. However, your messages
 * resulted in 10021 tokens".
 */
export function shareByProvider(message: string): number {
  const [first, second] = [...message.replaceAll(/(?<=\d),(?=\d{3})/g, "").matchAll(COUNT)].map(
    ([digits]) => Number(digits),
  );
  if (first === undefined || second === undefined) return SHARE_WITHOUT_COUNTS;
  const share = (Math.min(first, second) / Math.max(first, second)) * MARGIN;
  return Math.min(MAX_SHARE, Math.max(MIN_SHARE, share));
}

/**
 * Returns the messages of a request cut so that the complete prompt has at most `limit` tokens, as far as
 * possible.
 */
export function withinLimit(request: ChatRequest, limit: number): readonly ChatMessage[] {
  const { messages } = request;
  const room = Math.max(MIN_CUT_TOKENS, limit - tokensAside(request));
  const first = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  if (first < 0) return shortened(messages, room);
  const instructions = shortened(messages.slice(0, first), room * MAX_INSTRUCTIONS_SHARE);
  const turns = turnsOf(messages.slice(first));
  return [...instructions, ...turnsWithin(turns, room - tokensOf(instructions))];
}

/** Messages that stay or are removed together. */
type Turn = readonly ChatMessage[];

const RESULTS: ReadonlySet<string> = new Set(["tool", "function"]);

function turnsOf(messages: readonly ChatMessage[]): Turn[] {
  const turns: ChatMessage[][] = [];
  for (const message of messages) {
    if (RESULTS.has(message.role) && turns.length > 0) turns.at(-1)!.push(message);
    else turns.push([message]);
  }
  return turns;
}

/** Returns the last turn in any case, and turns from both ends as long as they fit. */
function turnsWithin(turns: readonly Turn[], room: number): ChatMessage[] {
  const last = shortened(turns.at(-1)!, room);
  const [head, tail]: [Turn[], Turn[]] = [[], [last]];
  let left = room - tokensOf(last);
  let [from, to] = [0, turns.length - 2];
  let [isHead, isOneSided] = [true, false];
  while (from <= to) {
    const turn = turns[isHead ? from : to]!;
    const tokens = tokensOf(turn);
    const part = tokens <= left ? turn : cutTurn(turn, left);
    if (part !== undefined) (isHead ? head : tail).push(part);
    if (part === turn) {
      left -= tokens;
      if (isHead) from += 1;
      else to -= 1;
    } else if (part !== undefined || isOneSided) break;
    else isOneSided = true;
    if (part === undefined || !isOneSided) isHead = !isHead;
  }
  return [...head, ...tail.reverse()].flat();
}

/** Returns a turn cut to `room` tokens, or undefined if it cannot be cut. */
function cutTurn(turn: Turn, room: number): Turn | undefined {
  if (turn.length > 1 || turn[0]!.tool_calls || room < MIN_CUT_TOKENS) return undefined;
  const cut = shortened(turn, room);
  return tokensOf(cut) <= room ? cut : undefined;
}

const MAX_CUTS = 20;
/** Factor by which texts are cut shorter than necessary, because tokens are estimated. */
const CUT_FACTOR = 0.95;

/** Returns messages with their texts cut in the middle, each by the same share, to about `room` tokens in total. */
function shortened(messages: readonly ChatMessage[], room: number): readonly ChatMessage[] {
  let result = messages;
  for (let cuts = 0; cuts < MAX_CUTS; cuts++) {
    const tokens = tokensOf(result);
    if (tokens <= room) return result;
    const texts = textTokensOf(result);
    const share = Math.max(0, (texts - (tokens - room)) / Math.max(texts, 1)) * CUT_FACTOR;
    result = result.map((message) => ({ ...message, content: cutContent(message.content, share) }));
  }
  return result;
}

function cutContent(content: ChatMessage["content"], share: number): ChatMessage["content"] {
  if (typeof content === "string") return cutText(content, share);
  if (!Array.isArray(content)) return content;
  return (content as ContentPart[]).map((part) =>
    part.text === undefined ? part : { ...part, text: cutText(part.text, share) },
  );
}

function cutText(text: string, share: number): string {
  const side = Math.floor((text.length * share) / 2);
  if (side * 2 + GAP.length >= text.length) return text;
  const cut = text.slice(0, side) + GAP + text.slice(text.length - side);
  return cut.toWellFormed();
}

function tokensOf(messages: readonly ChatMessage[]): number {
  return messages.reduce((sum, message) => sum + tokensOfMessage(message), 0);
}

function textTokensOf(messages: readonly ChatMessage[]): number {
  return messages.reduce((sum, { content }) => sum + tokensOfContent(content, 0), 0);
}

function tokensOfMessage(message: ChatMessage): number {
  let tokens = TOKENS_AROUND_MESSAGE + tokensOfContent(message.content, TOKENS_OF_MEDIUM);
  for (const field in message) {
    if (field === "content" || field === "role") continue;
    if (field === "audio" || field === "images") tokens += message[field] ? TOKENS_OF_MEDIUM : 0;
    else tokens += tokensOfJson(message[field]);
  }
  return tokens;
}

function tokensOfContent(content: ChatMessage["content"], ofMedium: number): number {
  if (typeof content === "string") return estimatedTextTokens(content);
  if (!Array.isArray(content)) return 0;
  return (content as ContentPart[]).reduce(
    (sum, { text }) => sum + (text === undefined ? ofMedium : estimatedTextTokens(text)),
    0,
  );
}

/** Returns the estimated tokens of the prompt outside the messages. */
function tokensAside({ tools, functions, response_format: format }: ChatRequest): number {
  return tokensOfJson(tools) + tokensOfJson(functions) + tokensOfJson(format);
}

function tokensOfJson(value: unknown): number {
  return value === undefined || value === null ? 0 : estimatedTextTokens(JSON.stringify(value));
}
