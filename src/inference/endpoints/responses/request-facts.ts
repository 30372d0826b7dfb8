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

/** What decides about a request, whatever its length. */
export interface ResponsesFacts {
  /** As the chat call takes it. */
  readonly chat: ChatRequest;
  /** What has no counterpart there. */
  readonly untranslated: readonly string[];
  readonly size: PromptSize;
  /** What its response repeats of it: members in JSON. */
  readonly echo: string;
  /** Whether reasoning is shown as its summary. */
  readonly showsSummary: boolean;
  /** Names of functions whose input is text in place of JSON. */
  readonly customTools: ReadonlySet<string>;
  /** Tools of namespaces, by the names of their functions. */
  readonly namespaced: ReadonlyMap<string, NamespacedTool>;
  /** Undefined where the request has none. */
  readonly hosted: HostedFacts | undefined;
  /** What it asks of tools that a provider runs; undefined where a chat has words for all of it. */
  readonly ofProvider: ProviderToolUse | undefined;
  /** Set where the gateway runs its tools, which a provider may run too. */
  readonly runsHere?: boolean;
  /** Whether its response can be continued. */
  readonly isStored: boolean;
  /** Whether it runs without its client. */
  readonly isBackground: boolean;
  /** Whether the client asks for events: the call of one that runs in the background has them in any case. */
  readonly isStreamed: boolean;
}

/** Tools of a request that the gateway runs. */
export interface HostedFacts {
  /** With their places among the request's tools. */
  readonly tools: readonly (readonly [at: number, tool: Tool])[];
  readonly include: readonly string[];
  readonly maxRuns: number | undefined;
  /** Names of the caller's own functions, those of namespaces among them. */
  readonly offered: readonly string[];
  /** Those of the conversation that are of remote servers. */
  readonly items: readonly Item[];
}

/** More names than a header lists. */
const MAX_LISTED = 100;
/** Characters. Each response, and three events of its stream, say them again. */
const MAX_ECHO = 1_048_576;

/** @param turn whose body has passed its checks. Throws 400. */
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

/** Items of which a picture is part. */
const PICTURES: ReadonlySet<unknown> = new Set(["computer_call_output", "image_generation_call"]);

function withForeign(size: PromptSize, items: readonly Item[], tools: readonly Tool[]): PromptSize {
  const sent = tools.filter(isSentToProvider);
  if (items.length + sent.length === 0) return size;
  const texts = items.filter(({ type }) => !PICTURES.has(type));
  // The functions of a namespace are among those of the chat.
  const told = sent.map((tool) => (tool.type === NAMESPACE ? { ...tool, tools: [] } : tool));
  const bytes = [...texts, ...told].map((one) => Buffer.byteLength(JSON.stringify(one)));
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
