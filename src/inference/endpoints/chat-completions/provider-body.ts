import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import {
  AS_ITEMS,
  type ChatBody,
  type ChatRequestFields,
  type ItemsRequest,
  ShortBody,
} from "../../../providers/chat-body.ts";
import { promptSize } from "./cost-bound.ts";
import { asFunctions } from "./custom-tools.ts";
import { asksMiddleOut, promptLimit, withinLimit } from "./middle-out.ts";
import { type ChatMessage, type ChatRequest, ITEM_FORM, LONG_BODY } from "./request.ts";
import { isSearching } from "./web-plugin.ts";

/** Members that are the gateway's own: they decide something here and mean nothing to a provider. */
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
  // Assigned, it would not be a member but put its own members behind those of the body.
  "__proto__",
]);

/** Whether the field decides something here alone, so that no provider has to have it. */
export function isGatewayField(field: string): boolean {
  return GATEWAY_FIELDS.has(field);
}

/**
 * The body for a candidate in OpenAI's wire form, without the fields that it lacks. Usage is always asked
 * for; the limit of output tokens is the one that the hold covers. Members that are null say nothing and
 * are left out. A long body stays in its thread.
 */
export function providerBody(
  request: ChatRequest,
  candidate: Candidate,
  outputTokens: number | undefined,
  lacked: RoutePlan["lacked"],
  { added, asItems, addition = "", customAsFunctions, promptShare = 1 }: ShapeOptions = {},
): ChatBody {
  const { provider, terms, upstreamModel: model } = candidate;
  const modelId = candidate.model.canonicalId ?? candidate.model.id;
  const needsLimit =
    outputTokens === undefined && provider.needsOutputLimit?.(model, modelId) === true;
  const promptTokens = asksMiddleOut(request)
    ? cutTokens(request, terms, addition, promptShare)
    : undefined;
  const shape: BodyShape = {
    model,
    promptTokens,
    outputTokens: needsLimit ? terms.maxOutputTokens : outputTokens,
    leftOut: lacked?.get(candidate)?.leftOut ?? NOTHING,
    added,
    asItems,
    addition,
    customAsFunctions,
  };
  return request[LONG_BODY]?.shapedAs(shape) ?? new ShortBody(shapedBody(request, shape));
}

type ShapeOptions = Pick<BodyShape, "added" | "asItems" | "addition" | "customAsFunctions"> & {
  /** Share of the prompt that a shorter try sends; 1 sends what fits the model. */
  readonly promptShare?: number;
};

/** What a prompt is cut to. @param share of what would be sent otherwise. Returns undefined if it is sent whole. */
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

/** What the gateway adds to a request whose tools it runs. */
export interface AddedParts {
  /** Behind those of the request. */
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly unknown[];
  /** In the place of the request's own. */
  readonly toolChoice?: "auto" | "none";
}

/** What of a candidate's body is not the caller's. */
export interface BodyShape {
  readonly model: string;
  readonly outputTokens: number | undefined;
  /** Fields that the candidate lacks. */
  readonly leftOut: readonly string[];
  /** What the prompt is cut to. */
  readonly promptTokens?: number | undefined;
  /** The answer is read as a stream, whether or not the request asks for one. */
  readonly added?: AddedParts | undefined;
  /** Whether the candidate is sent the request in items; nothing is added then. */
  readonly asItems?: boolean | undefined;
  /** To what the system says. */
  readonly addition?: string | undefined;
  /** Whether functions stand for custom tools. */
  readonly customAsFunctions?: boolean | undefined;
}

const NOTHING: readonly string[] = [];

export function shapedBody(request: ChatRequest, shape: BodyShape): ChatRequestFields {
  const { model, outputTokens, promptTokens, asItems, addition = "" } = shape;
  const items = asItems === true ? request[ITEM_FORM]?.(shape.leftOut) : undefined;
  const body: Record<string, unknown> & { [AS_ITEMS]?: ItemsRequest } = { model };
  if (items !== undefined) body[AS_ITEMS] = items;
  // A request may hold as many unknown fields as fit into it.
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
 * With the text behind what the system says at the beginning. Not in a message of its own there: some chat templates
 * take one alone.
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
  const { messages: asked, tools: offered } = body as Partial<ChatRequest>;
  body.messages = [...asked!, ...messages];
  body.tools = [...(offered ?? []), ...tools];
  if (body.tool_choice !== undefined || toolChoice === "none")
    body.tool_choice = toolChoice ?? body.tool_choice;
}

function forwardedMetadata(metadata: Record<string, unknown>): Record<string, unknown> {
  const { idempotency_key: _, ...rest } = metadata;
  return rest;
}
