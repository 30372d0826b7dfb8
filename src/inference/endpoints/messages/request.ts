import type { ProviderPreferences } from "../../call/routing/preferences.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The endpoint, as the hash of an idempotent call names it. */
export const MESSAGES_ROUTE = "POST /v1/messages";

export const WITHOUT_COUNTERPART: unique symbol = Symbol("without counterpart");

/** A request of the Messages API after its schema was checked. Further members go to Anthropic's models. */
export interface MessagesBody {
  readonly model?: string | null;
  readonly messages: readonly Message[];
  readonly system?: string | readonly Block[] | null;
  /** Of a count there is none. */
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
  /** Fields that a preset would add, in the words of chat completions, and that this API has not. */
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

/** Members that are the gateway's own, and that no provider gets as they are. */
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

/** Tools of Anthropic's that its clients run themselves, by the beginning of their type. */
const CALLERS_TOOLS = ["bash_", "text_editor_", "computer_", "memory_"];

/** Whether a tool is the caller's own, with a schema: what every model can be offered. */
export function isCustom({ type }: Tool): boolean {
  return type === undefined || type === null || type === "custom";
}

/** Whether the caller runs a tool; any other is run by the provider, at a price for each use. */
export function isRunByCaller(tool: Tool): boolean {
  return isCustom(tool) || CALLERS_TOOLS.some((prefix) => tool.type!.startsWith(prefix));
}
