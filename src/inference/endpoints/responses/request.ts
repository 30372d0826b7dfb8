import type { ProviderPreferences } from "../../call/routing/preferences.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The endpoint, as the hash of an idempotent call names it. */
export const RESPONSES_ROUTE = "POST /v1/responses";

/** A request of the Responses API after its schema was checked. */
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

/** What a conversation is made of: messages, calls of tools and what they gave, reasoning. */
export interface Item {
  /** Absent for a message in its short form. */
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
  /** Of a custom tool. */
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

/** A request with the stored items that it builds on, which came from this gateway. */
export interface ResponsesTurn {
  readonly body: ResponsesBody;
  /** Input and output of the response that it continues from, and of those before it. */
  readonly earlier: readonly Item[];
  /** Ids of earlier items that were taken out of the conversation. */
  readonly removed?: readonly string[];
  /** Items of other responses, to which item references may point. */
  readonly referable: readonly Item[];
}

/** The type of an item; the short form of a message has none. */
export function typeOfItem({ type }: Item): string {
  return type ?? "message";
}

/** The conversation that a request names. */
export function conversationIdOf({ conversation }: ResponsesBody): string | undefined {
  return typeof conversation === "string" ? conversation : conversation?.id;
}

/** The input as items. */
export function inputItems({ input }: ResponsesBody): readonly Item[] {
  if (typeof input === "string") return [{ type: "message", role: "user", content: input }];
  return input ?? [];
}

/** Tools that the caller runs, which every model can be offered. */
export function isOffered({ type }: Tool): boolean {
  return type === "function" || type === "custom";
}

/** Tools that the gateway runs, by their types: the functions that models are offered (contract §7). */
const RUN_HERE: ReadonlyMap<string, string> = new Map([
  ["web_search", "web_search"],
  ["web_search_2025_08_26", "web_search"],
  ["web_search_preview", "web_search"],
  ["web_search_preview_2025_03_11", "web_search"],
  ["file_search", "file_search"],
  ["code_interpreter", "code_interpreter"],
]);

/** Tools of servers that the gateway calls, under names of their own. */
const REMOTE = "mcp";

/** Coding agents offer them with every call; a model that lacks them works without. */
export function isOfferedInPassing(tool: Fields): boolean {
  if (tool.type === "namespace") return true;
  return tool.type === "web_search" && tool.external_web_access !== undefined;
}

/** Tools that the gateway runs for the model. */
export function isRunHere(tool: Tool): boolean {
  return (RUN_HERE.has(tool.type) || tool.type === REMOTE) && !isOfferedInPassing(tool);
}

/** What a choice of a tool that the gateway runs names: a function; null stands for any tool. Undefined for others. */
export function chosenHere({
  type,
  name,
}: Pick<ToolChoice, "type" | "name">): string | null | undefined {
  return type === REMOTE ? (name ?? null) : RUN_HERE.get(type);
}

/** The names of tools whose input is text in place of JSON. */
export function customToolsOf(tools: readonly Tool[]): ReadonlySet<string> {
  const custom = tools.filter(({ type }) => type === "custom");
  return new Set(custom.map(({ name }) => name!));
}
