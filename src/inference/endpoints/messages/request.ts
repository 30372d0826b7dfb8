import type { ProviderPreferences } from "../../call/routing/preferences.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The name of the endpoint in the hash of an idempotent request. */
export const MESSAGES_ROUTE = "POST /v1/messages";

export const WITHOUT_COUNTERPART: unique symbol = Symbol("without counterpart");

/** A request of the Messages API that has passed its schema. Other members are passed to Anthropic's models. */
export interface MessagesBody {
  readonly model?: string | null;
  readonly messages: readonly Message[];
  readonly system?: string | readonly Block[] | null;
  /** Output limit in tokens. Absent in a token count. */
  readonly max_tokens?: number;
  readonly stream?: boolean | null;
  readonly stop_sequences?: readonly string[] | null;
  readonly temperature?: number | null;
  readonly top_p?: number | null;
  readonly top_k?: number | null;
  readonly tools?: readonly Tool[] | null;
  readonly tool_choice?: ToolChoice | null;
  readonly thinking?: {
    readonly type: "enabled" | "adaptive" | "disabled";
    readonly budget_tokens?: number | null;
  } | null;
  readonly output_config?: {
    readonly effort?: string | null;
    readonly format?: Fields | null;
  } | null;
  readonly context_management?: Fields | null;
  readonly cache_control?: CacheControl | null;
  readonly metadata?: Readonly<Record<string, unknown>> | null;
  readonly models?: readonly string[] | null;
  readonly provider?: ProviderPreferences | null;
  readonly session_id?: string | null;
  readonly trace?: Record<string, unknown> | null;
  readonly route_explain?: boolean | null;
  /** Fields of a preset, named as in chat completions, that this API does not have. */
  readonly [WITHOUT_COUNTERPART]?: readonly string[];
  readonly [field: string]: unknown;
}

export interface Message {
  readonly role: "user" | "assistant" | "system";
  readonly content: string | readonly Block[];
}

export interface Block {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface Tool {
  readonly type?: string | null;
  readonly name?: string;
  readonly description?: string | null;
  readonly input_schema?: Fields;
  readonly [field: string]: unknown;
}

export interface ToolChoice {
  readonly type: "auto" | "any" | "tool" | "none";
  readonly name?: string;
  readonly disable_parallel_tool_use?: boolean | null;
}

export interface CacheControl {
  readonly type: "ephemeral";
  readonly ttl?: string | null;
}

/** Fields that only the gateway uses. No provider receives them unchanged. */
export const GATEWAY_FIELDS: ReadonlySet<string> = new Set([
  "model",
  "models",
  "provider",
  "stream",
  "metadata",
  "session_id",
  "trace",
  "route_explain",
  "preset",
  "guardrail",
  "__proto__",
]);

/** Type prefixes of Anthropic's tools that clients run themselves. */
const CALLERS_TOOLS = ["bash_", "text_editor_", "computer_", "memory_"];

/** Returns true if a tool is defined by the caller with a schema, so that every model can be offered it. */
export function isCustom({ type }: Tool): boolean {
  return type === undefined || type === null || type === "custom";
}

/** Returns true if the caller runs the tool. The provider runs all others, at a price per use. */
export function isRunByCaller(tool: Tool): boolean {
  return isCustom(tool) || CALLERS_TOOLS.some((prefix) => tool.type!.startsWith(prefix));
}
