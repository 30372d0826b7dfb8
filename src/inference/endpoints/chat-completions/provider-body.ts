import {
  AS_ITEMS,
  type ChatBody,
  type ChatRequestFields,
  type ItemsRequest,
  ShortBody,
} from "../../../providers/chat-body.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import { promptSize } from "./cost-bound.ts";
import { asFunctions } from "./custom-tools.ts";
import { promptLimit, usesMiddleOut, withinLimit } from "./middle-out.ts";
import { type ChatMessage, type ChatRequest, ITEM_FORM, OFFLOADED_BODY } from "./request.ts";
import { isSearching } from "./web-plugin.ts";

/** Fields that only the gateway uses. They mean nothing to a provider. */
const GATEWAY_FIELDS = new Set([
  "model",
  "models",
  "provider",
  "plugins",
  "web_search_options",
  "preset",
  "guardrail",
  "trace",
  "session_id",
  "route",
  "route_explain",
  "transforms",
  "debug",
  "include_reasoning",
  "metadata",
  "max_tokens",
  "max_completion_tokens",
  "stream",
  "stream_options",
  "usage",
  // An assignment to this name would set the prototype of the body instead of a member.
  "__proto__",
]);

/** Returns true if only the gateway uses the field, so that no provider has to support it. */
export function isGatewayField(field: string): boolean {
  return GATEWAY_FIELDS.has(field);
}

/**
 * Returns the body for a candidate in OpenAI's form, without the fields that the candidate does not support.
 * The body always requests usage, and its output limit is the one that the hold covers. Members that are null
 * are left out. A long body stays in its work thread.
 */
export function providerBody(
  request: ChatRequest,
  candidate: Candidate,
  outputTokens: number | undefined,
  unsupported: RoutePlan["unsupported"],
  { added, asItems, addition = "", customAsFunctions, promptShare = 1 }: ShapeOptions = {},
): ChatBody {
  const { provider, terms, upstreamModel: model } = candidate;
  const modelId = candidate.model.canonicalId ?? candidate.model.id;
  const needsLimit =
    outputTokens === undefined && provider.needsOutputLimit?.(model, modelId) === true;
  const promptTokens = usesMiddleOut(request)
    ? cutTokens(request, terms, addition, promptShare)
    : undefined;
  const shape: BodyShape = {
    model,
    promptTokens,
    outputTokens: needsLimit ? terms.maxOutputTokens : outputTokens,
    leftOut: unsupported?.get(candidate)?.leftOut ?? NOTHING,
    added,
    asItems,
    addition,
    customAsFunctions,
  };
  return request[OFFLOADED_BODY]?.shapedAs(shape) ?? new ShortBody(shapedBody(request, shape));
}

type ShapeOptions = Pick<BodyShape, "added" | "asItems" | "addition" | "customAsFunctions"> & {
  /**
   * Share of the prompt to send when the provider rejected it as too long. 1 sends everything that fits the
   * model.
   */
  readonly promptShare?: number;
};

/**
 * Returns the tokens to which the prompt is cut, or undefined if it is sent complete.
 *
 * @param share of the tokens that would be sent otherwise
 */
function cutTokens(
  request: ChatRequest,
  terms: Candidate["terms"],
  addition: string,
  share: number,
): number | undefined {
  const { transformedTokens } = promptSize(request);
  const limit = promptLimit(request, transformedTokens, terms, addition);
  if (share === 1 || transformedTokens === undefined) return limit;
  return Math.floor((limit ?? transformedTokens) * share);
}

/** Parts that the gateway adds to a request whose tools it runs. */
export interface AddedParts {
  /** Messages after those of the request. */
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly unknown[];
  /** The tool choice that replaces the request's tool choice. */
  readonly toolChoice?: "auto" | "none";
}

/** The parts of a candidate's body that the gateway sets. */
export interface BodyShape {
  readonly model: string;
  readonly outputTokens: number | undefined;
  /** Fields that the candidate does not support. */
  readonly leftOut: readonly string[];
  /** The tokens to which the prompt is cut. Undefined if it is not cut. */
  readonly promptTokens?: number | undefined;
  /** Added parts. If set, the gateway reads the answer as a stream, whether or not the request is streamed. */
  readonly added?: AddedParts | undefined;
  /** True if the candidate receives the request as items. Nothing is added then. */
  readonly asItems?: boolean | undefined;
  /** Text added to the system message. */
  readonly addition?: string | undefined;
  /** True if functions replace custom tools. */
  readonly customAsFunctions?: boolean | undefined;
}

const NOTHING: readonly string[] = [];

export function shapedBody(request: ChatRequest, shape: BodyShape): ChatRequestFields {
  const { model, outputTokens, promptTokens, asItems, addition = "" } = shape;
  const items = asItems === true ? request[ITEM_FORM]?.(shape.leftOut) : undefined;
  const body: Record<string, unknown> & { [AS_ITEMS]?: ItemsRequest } = { model };
  if (items !== undefined) body[AS_ITEMS] = items;
  // A Set, because a request can contain thousands of unknown fields.
  const leftOut = shape.leftOut.length === 0 ? undefined : new Set(shape.leftOut);
  for (const field in request) {
    if (GATEWAY_FIELDS.has(field)) continue;
    const value = request[field];
    if (value === null || value === undefined) continue;
    if (leftOut?.has(field) === true) continue;
    body[field] = shape.customAsFunctions === true ? asFunctions(field, value) : value;
  }
  if (request.web_search_options && isSearching(model)) {
    body.web_search_options = request.web_search_options;
  }
  if (body.store === true && request.metadata) body.metadata = forwardedMetadata(request.metadata);
  if (promptTokens !== undefined) {
    const messages = withinLimit(request, promptTokens);
    body.messages = shape.customAsFunctions === true ? asFunctions("messages", messages) : messages;
  }
  if (addition !== "") body.messages = withAddition(body as unknown as ChatRequest, addition);
  if (outputTokens !== undefined) body.max_tokens = outputTokens;
  if (shape.added !== undefined) addParts(body, shape.added);
  if (request.stream === true || shape.added !== undefined) {
    body.stream = true;
    body.stream_options = { include_usage: true };
  }
  return body;
}

/**
 * Returns the messages with a text added to the last of the system messages at the beginning. A separate
 * message would break chat templates that accept only one system message.
 */
function withAddition({ messages }: ChatRequest, text: string): readonly ChatMessage[] {
  const first = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  const at = (first < 0 ? messages.length : first) - 1;
  const last = messages[at];
  if (last === undefined) return [{ role: "system", content: text }, ...messages];
  const { content } = last;
  const joined = Array.isArray(content)
    ? [...content, { type: "text", text }]
    : `${typeof content === "string" ? content : ""}\n\n${text}`;
  return messages.with(at, { ...last, content: joined });
}

function addParts(
  body: Record<string, unknown>,
  { messages, tools, toolChoice }: AddedParts,
): void {
  const { messages: requested, tools: offered } = body as Partial<ChatRequest>;
  body.messages = [...requested!, ...messages];
  body.tools = [...(offered ?? []), ...tools];
  if (body.tool_choice !== undefined || toolChoice === "none")
    body.tool_choice = toolChoice ?? body.tool_choice;
}

function forwardedMetadata(metadata: Record<string, unknown>): Record<string, unknown> {
  const { idempotency_key: _, ...rest } = metadata;
  return rest;
}
