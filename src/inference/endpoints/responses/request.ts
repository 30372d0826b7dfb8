import type { ProviderPreferences } from "../../call/routing/preferences.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The name of the endpoint in the hash of an idempotent request. */
export const RESPONSES_ROUTE = "POST /v1/responses";

/** A request of the Responses API that has passed its schema. */
export interface ResponsesBody {
  readonly model?: string | null;
  readonly input?: string | readonly Item[] | null;
  readonly instructions?: string | null;
  readonly previous_response_id?: string | null;
  readonly conversation?: string | { readonly id: string } | null;
  readonly stream?: boolean | null;
  readonly store?: boolean | null;
  readonly background?: boolean | null;
  readonly temperature?: number | null;
  readonly top_p?: number | null;
  readonly presence_penalty?: number | null;
  readonly frequency_penalty?: number | null;
  readonly top_logprobs?: number | null;
  readonly max_output_tokens?: number | null;
  readonly max_tool_calls?: number | null;
  readonly parallel_tool_calls?: boolean | null;
  readonly tools?: readonly Tool[] | null;
  readonly tool_choice?: string | ToolChoice | null;
  readonly text?: {
    readonly format?: TextFormat | null;
    readonly verbosity?: string | null;
  } | null;
  readonly reasoning?: {
    readonly effort?: string | null;
    readonly summary?: string | null;
  } | null;
  readonly include?: readonly string[] | null;
  readonly truncation?: string | null;
  readonly service_tier?: string | null;
  readonly prompt_cache_key?: string | null;
  readonly prompt_cache_retention?: string | null;
  readonly safety_identifier?: string | null;
  readonly user?: string | null;
  readonly metadata?: Record<string, unknown> | null;
  readonly models?: readonly string[] | null;
  readonly provider?: ProviderPreferences | null;
  readonly session_id?: string | null;
  readonly trace?: Record<string, unknown> | null;
  readonly route_explain?: boolean | null;
  readonly [field: string]: unknown;
}

/** An item of a conversation: a message, a tool call, its output, or reasoning. */
export interface Item {
  /** Kind of the item. Absent for a message in its short form. */
  readonly type?: string | null;
  readonly id?: string | null;
  readonly [field: string]: unknown;
}

export interface Part {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface Tool {
  readonly type: string;
  readonly name?: string;
  readonly description?: string | null;
  readonly parameters?: Fields | null;
  readonly strict?: boolean | null;
  /** The input format of a custom tool. */
  readonly format?: Fields | null;
  readonly [field: string]: unknown;
}

export interface ToolChoice {
  readonly type: string;
  readonly name?: string;
  readonly mode?: string;
  readonly tools?: readonly Pick<ToolChoice, "type" | "name">[];
}

export interface TextFormat {
  readonly type: "text" | "json_object" | "json_schema";
  readonly name?: string;
  readonly description?: string | null;
  readonly schema?: Fields;
  readonly strict?: boolean | null;
}

/** A request with the stored items that it refers to, which this gateway has stored. */
export interface ResponsesTurn {
  readonly body: ResponsesBody;
  /** Input and output of the response that the request continues, and of those before it. */
  readonly earlier: readonly Item[];
  /** Ids of items that were removed from the conversation. */
  readonly removed?: readonly string[];
  /** Items of other responses that item references can point to. */
  readonly referable: readonly Item[];
}

/** Returns the type of an item. A message in its short form has no type. */
export function typeOfItem({ type }: Item): string {
  return type ?? "message";
}

/** Returns the id of the conversation that a request names. */
export function conversationIdOf({ conversation }: ResponsesBody): string | undefined {
  return typeof conversation === "string" ? conversation : conversation?.id;
}

/** Returns the input as items. */
export function inputItems({ input }: ResponsesBody): readonly Item[] {
  if (typeof input === "string") return [{ type: "message", role: "user", content: input }];
  return input ?? [];
}

/** Returns true if the caller runs the tool, so that every model can be offered it. */
export function isOffered({ type }: Tool): boolean {
  return type === "function" || type === "custom";
}

/** Tool types that the gateway runs, and the functions that models are offered for them (contract §7). */
const RUN_HERE: ReadonlyMap<string, string> = new Map([
  ["web_search", "web_search"],
  ["web_search_2025_08_26", "web_search"],
  ["web_search_preview", "web_search"],
  ["web_search_preview_2025_03_11", "web_search"],
  ["file_search", "file_search"],
  ["code_interpreter", "code_interpreter"],
]);

/** Type of tools on remote servers. A server has several functions, each with its own name. */
const REMOTE_TYPE = "mcp";

/** Returns true for tools that coding agents offer with every call. Models that do not support them work without. */
export function isOfferedByDefault(tool: Fields): boolean {
  if (tool.type === "namespace") return true;
  return tool.type === "web_search" && tool.external_web_access !== undefined;
}

/** Returns true if the gateway runs the tool for the model. */
export function isRunHere(tool: Tool): boolean {
  return (RUN_HERE.has(tool.type) || tool.type === REMOTE_TYPE) && !isOfferedByDefault(tool);
}

/**
 * Returns the function that a choice of a gateway-run tool names. Null is any tool of a server. Returns
 * undefined for other tools.
 */
export function functionOfChoice({
  type,
  name,
}: Pick<ToolChoice, "type" | "name">): string | null | undefined {
  return type === REMOTE_TYPE ? (name ?? null) : RUN_HERE.get(type);
}

/** Returns the names of tools whose input is text instead of JSON. */
export function customToolsOf(tools: readonly Tool[]): ReadonlySet<string> {
  const custom = tools.filter(({ type }) => type === "custom");
  return new Set(custom.map(({ name }) => name!));
}
