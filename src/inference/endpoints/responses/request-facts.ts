import { GatewayError } from "../../../lib/errors.ts";
import { type PromptSize, promptSize } from "../chat-completions/cost-bound.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { chatRequestOf } from "./chat-request.ts";
import { assertCalled, turnItems } from "./item-references.ts";
import { NAMESPACE, type NamespacedTool } from "./namespace-tools.ts";
import { isSentToProvider, type ProviderToolUse, providerToolUse } from "./provider-tools.ts";
import {
  customToolsOf,
  type Item,
  isOffered,
  isRunHere,
  type ResponsesBody,
  type ResponsesTurn,
  type Tool,
} from "./request.ts";
import { assertChat, isForeignItem } from "./request-checks.ts";
import { echoOf } from "./response-json.ts";

/** The facts of a request that decisions need. They are small for a request of any length. */
export interface ResponsesFacts {
  /** The request, translated to a chat call. */
  readonly chat: ChatRequest;
  /** Names of parts without a counterpart in the chat call. */
  readonly untranslated: readonly string[];
  readonly size: PromptSize;
  /** Members of the request that its response repeats, as JSON without braces. */
  readonly echo: string;
  /** True if reasoning is shown as a summary. */
  readonly showsSummary: boolean;
  /** Names of functions whose input is text instead of JSON. */
  readonly customTools: ReadonlySet<string>;
  /** Tools of namespaces, by the names of their functions. */
  readonly namespaced: ReadonlyMap<string, NamespacedTool>;
  /** The tools that the gateway can run. Undefined if the request has none. */
  readonly hosted: HostedFacts | undefined;
  /** The tools that a provider runs. Undefined if a chat can express the request. */
  readonly ofProvider: ProviderToolUse | undefined;
  /** True if the gateway runs the tools, even if a provider could run them. */
  readonly runsHere?: boolean;
  /** True if the response can be continued. */
  readonly isStored: boolean;
  /** True if the response runs in the background. */
  readonly isBackground: boolean;
  /** True if the client streams events. The call of a background response produces events in any case. */
  readonly isStreamed: boolean;
}

/** Tools of a request that the gateway runs. */
export interface HostedFacts {
  /** The tools with their indexes in the request. */
  readonly tools: readonly (readonly [at: number, tool: Tool])[];
  readonly include: readonly string[];
  readonly maxRuns: number | undefined;
  /** Names of the caller's own functions, including those of namespaces. */
  readonly offered: readonly string[];
  /** Items of the conversation that belong to remote servers. */
  readonly items: readonly Item[];
}

/** Maximum number of names. More than a response header lists. */
const MAX_LISTED = 100;
/** Maximum characters. Each response, and three events of its stream, repeat them. */
const MAX_ECHO = 1_048_576;

/**
 * Returns the facts of a turn. Throws 400 if a check of the items, the tools or the chat call fails.
 *
 * @param turn its body has passed its checks
 */
export function factsOf(turn: ResponsesTurn): ResponsesFacts {
  const { body } = turn;
  assertCalled(turn);
  const { request: chat, untranslated, namespaces } = chatRequestOf(turn);
  const flat = [...namespaces.functions];
  assertChat(chat);
  const foreign = turnItems(turn).filter(isForeignItem);
  const echo = echoOf(body);
  if (echo.length > MAX_ECHO) throw tooMuch();
  return {
    chat,
    untranslated: untranslated.slice(0, MAX_LISTED),
    size: withForeign(promptSize(chat), foreign, body.tools ?? []),
    echo,
    showsSummary: Boolean(body.reasoning?.summary),
    customTools: customToolsOf([...(body.tools ?? []), ...flat.map(([, { tool }]) => tool)]),
    namespaced: new Map(flat.map(([key, { namespace, name }]) => [key, { namespace, name }])),
    hosted: hostedOf(body, foreign, [...namespaces.functions.keys()]),
    ofProvider: providerToolUse(body, foreign.length > 0),
    isStored: body.store !== false,
    isBackground: body.background === true,
    isStreamed: body.stream === true,
  };
}

function hostedOf(
  { tools, include, max_tool_calls: maxRuns }: ResponsesBody,
  foreign: readonly Item[],
  flat: readonly string[],
): HostedFacts | undefined {
  const all = [...(tools ?? []).entries()];
  const hosted = all.filter(([, tool]) => isRunHere(tool));
  if (hosted.length === 0) return undefined;
  const named = all.filter(([, tool]) => isOffered(tool)).map(([, { name }]) => name!);
  const offered = [...named, ...flat];
  const items = foreign.filter(({ type }) => type?.startsWith("mcp_"));
  return { tools: hosted, include: include ?? [], maxRuns: maxRuns ?? undefined, offered, items };
}

/** Item types that contain an image. */
const IMAGE_ITEMS: ReadonlySet<unknown> = new Set([
  "computer_call_output",
  "image_generation_call",
]);

function withForeign(size: PromptSize, items: readonly Item[], tools: readonly Tool[]): PromptSize {
  const sent = tools.filter(isSentToProvider);
  if (items.length + sent.length === 0) return size;
  const texts = items.filter(({ type }) => !IMAGE_ITEMS.has(type));
  // The functions of a namespace are already part of the chat.
  const shownTools = sent.map((tool) => (tool.type === NAMESPACE ? { ...tool, tools: [] } : tool));
  const bytes = [...texts, ...shownTools].map((part) => Buffer.byteLength(JSON.stringify(part)));
  return {
    ...size,
    bytes: bytes.reduce((sum, more) => sum + more, size.bytes),
    messages: size.messages + items.length,
    media: size.media + items.length - texts.length,
    hasTools: size.hasTools || sent.length > 0,
  };
}

function tooMuch(): GatewayError {
  const message = `instructions, tools and text.format must not take more than ${MAX_ECHO} characters together.`;
  return new GatewayError("invalid_body", message, { param: "instructions" });
}
