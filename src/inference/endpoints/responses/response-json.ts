import type { Usage } from "../../../lib/usage.ts";
import type { FinishReason } from "../../../providers/interface.ts";
import { isProviderTool } from "./provider-tools.ts";
import {
  conversationIdOf,
  isOfferedByDefault,
  isRunHere,
  type ResponsesBody,
  type TextFormat,
  type Tool,
} from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The prefix of a response's id. The rest is the name of the response, which its request and its items share. */
const RESPONSE = "resp_";

/** Returns the name of a response, in hex, from the id of its request. */
export function nameOfResponse(requestId: string): string {
  return requestId.slice(requestId.indexOf("_") + 1);
}

export function responseId(name: string): string {
  return RESPONSE + name;
}

export type ResponseStatus =
  | "queued"
  | "in_progress"
  | "completed"
  | "incomplete"
  | "failed"
  | "cancelled";

/** The parts of a response that do not repeat the request. Texts are JSON, and times are Unix seconds. */
export interface ResponseParts {
  readonly name: string;
  readonly createdAt: number;
  readonly completedAt: number | null;
  readonly status: ResponseStatus;
  /** The reason why the response is incomplete. */
  readonly reason?: string | undefined;
  readonly error?: { readonly code: string; readonly message: string } | undefined;
  readonly model: string;
  readonly usage: Fields | null;
  /** The members that repeat the request, as JSON without braces: see `echoOf`. */
  readonly echo: string;
}

/** Returns a response without its output, which can be long. */
export function responseHead(parts: ResponseParts): string {
  const { name, createdAt, completedAt, status, reason, error, model, usage, echo } = parts;
  const members = JSON.stringify({
    id: responseId(name),
    object: "response",
    created_at: createdAt,
    completed_at: completedAt,
    status,
    incomplete_details: reason === undefined ? null : { reason },
    error: error ?? null,
    model,
    usage,
  });
  return `${members.slice(0, -1)},${echo}}`;
}

/**
 * Returns the response with its output.
 *
 * @param output JSON of items, separated by commas
 */
export function withOutput(head: string, output: string): string {
  return `${head.slice(0, -1)},"output":[${output}]}`;
}

/** Returns the JSON of a begun response with another status and without an answer. */
export function responseWith(
  begunJson: string,
  status: ResponseStatus,
  error?: { readonly code: string; readonly message: string },
): string {
  const errorMember = error && { error: { code: error.code, message: error.message } };
  return JSON.stringify({ ...(JSON.parse(begunJson) as Fields), status, ...errorMember });
}

const INCOMPLETE: Readonly<Partial<Record<FinishReason, string>>> = {
  length: "max_output_tokens",
  content_filter: "content_filter",
};

/**
 * Returns the status of a response by its finish reason.
 *
 * @param limit the limit of the gateway that ended the answer
 */
export function endOf(
  finish: FinishReason,
  limit?: string | undefined,
): Pick<ResponseParts, "status" | "reason"> {
  const reason = limit ?? INCOMPLETE[finish];
  return reason === undefined ? { status: "completed" } : { status: "incomplete", reason };
}

/** Returns the usage of an answer, with `cost` in USD. */
export function usageOf(usage: Usage, cost: number): Fields {
  const { promptTokens, cachedPromptTokens, cacheWriteTokens, completionTokens } = usage;
  return {
    input_tokens: promptTokens,
    input_tokens_details: {
      cached_tokens: cachedPromptTokens,
      ...(cacheWriteTokens > 0 && { cache_write_tokens: cacheWriteTokens }),
    },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: promptTokens + completionTokens,
    cost,
  };
}

/**
 * Returns the members of the request that a response repeats, with defaults for absent ones, as JSON without
 * braces.
 */
export function echoOf(body: ResponsesBody): string {
  const { tools, text, reasoning, tool_choice: choice } = body;
  const conversationId = conversationIdOf(body);
  const echo = {
    previous_response_id: body.previous_response_id ?? null,
    ...(conversationId !== undefined && { conversation: { id: conversationId } }),
    instructions: body.instructions ?? null,
    tools: (tools ?? []).flatMap(echoedTool),
    tool_choice: typeof choice === "string" ? choice : echoedChoice(choice),
    truncation: body.truncation ?? "disabled",
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    text: {
      format: echoedFormat(text?.format),
      ...(text?.verbosity && { verbosity: text.verbosity }),
    },
    top_p: body.top_p ?? 1,
    presence_penalty: body.presence_penalty ?? 0,
    frequency_penalty: body.frequency_penalty ?? 0,
    top_logprobs: body.top_logprobs ?? 0,
    temperature: body.temperature ?? 1,
    reasoning: { effort: reasoning?.effort ?? null, summary: reasoning?.summary ?? null },
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    store: body.store ?? true,
    background: body.background ?? false,
    service_tier: body.service_tier && body.service_tier !== "auto" ? body.service_tier : "default",
    metadata: body.metadata ?? {},
    safety_identifier: body.safety_identifier ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    user: body.user ?? null,
  };
  return JSON.stringify(echo).slice(1, -1);
}

function echoedTool(tool: Tool): Fields[] {
  if (isRunHere(tool)) return [withoutSecrets(tool)];
  const { type, name, description, parameters, strict, format } = tool;
  const shared = { type, name, description: description ?? null };
  if (type === "function") {
    return [{ ...shared, parameters: parameters ?? null, strict: strict ?? null }];
  }
  if (type === "custom") return [{ ...shared, format: format ?? { type: "text" } }];
  return isProviderTool(tool) && !isOfferedByDefault(tool) ? [withoutSecrets(tool)] : [];
}

/** Returns a tool without the credentials that the gateway uses at a server. They are neither shown nor stored. */
function withoutSecrets(tool: Tool): Fields {
  const { authorization: _authorization, headers: _headers, server_url: address, ...rest } = tool;
  if (typeof address !== "string") return rest;
  const url = URL.parse(address);
  const isBare = url === null || (url.pathname === "/" && url.search === "");
  return { ...rest, server_url: isBare ? (url?.origin ?? "") : `${url.origin}/<redacted>` };
}

function echoedChoice(choice: Exclude<ResponsesBody["tool_choice"], string>): unknown {
  if (!choice) return "auto";
  const { type, name, mode, tools } = choice;
  if (type !== "allowed_tools") return name === undefined ? { type } : { type, name };
  return { type, mode: mode ?? "auto", tools };
}

function echoedFormat(format: TextFormat | null | undefined): Fields {
  if (format?.type !== "json_schema") return { type: format?.type ?? "text" };
  const { type, name = "answer", description, schema, strict } = format;
  return { type, name, description: description ?? null, schema, strict: strict ?? false };
}
