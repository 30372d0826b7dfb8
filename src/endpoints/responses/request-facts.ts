import { GatewayError } from "../../lib/errors.ts";
import { type PromptSize, promptSize } from "../chat-completions/cost-bound.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { chatRequestOf } from "./chat-request.ts";
import { assertCalled } from "./item-references.ts";
import {
  customToolsOf,
  isOffered,
  isRunHere,
  type ResponsesBody,
  type ResponsesTurn,
  type Tool,
} from "./request.ts";
import { assertChat } from "./request-checks.ts";
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
  readonly customTools: ReadonlySet<string>;
  /** Undefined where the request has none. */
  readonly hosted: HostedFacts | undefined;
  /** Whether its response can be continued. */
  readonly isStored: boolean;
}

/** Tools of a request that the gateway runs. */
export interface HostedFacts {
  /** With their places among the request's tools. */
  readonly tools: readonly (readonly [at: number, tool: Tool])[];
  readonly include: readonly string[];
  readonly maxRuns: number | undefined;
  /** Names of the caller's own functions. */
  readonly offered: readonly string[];
}

/** More names than a header lists. */
const MAX_LISTED = 100;
/** Characters. Each response, and three events of its stream, say them again. */
const MAX_ECHO = 1_048_576;

/** @param turn whose body has passed its checks. Throws 400. */
export function factsOf(turn: ResponsesTurn): ResponsesFacts {
  const { body } = turn;
  assertCalled(turn);
  const { request: chat, untranslated } = chatRequestOf(turn);
  assertChat(chat);
  const echo = echoOf(body);
  if (echo.length > MAX_ECHO) throw tooMuch();
  return {
    chat,
    untranslated: untranslated.slice(0, MAX_LISTED),
    size: promptSize(chat),
    echo,
    showsSummary: Boolean(body.reasoning?.summary),
    customTools: customToolsOf(body),
    hosted: hostedOf(body),
    isStored: body.store !== false,
  };
}

function hostedOf({
  tools,
  include,
  max_tool_calls: maxRuns,
}: ResponsesBody): HostedFacts | undefined {
  const all = [...(tools ?? []).entries()];
  const hosted = all.filter(([, tool]) => isRunHere(tool));
  if (hosted.length === 0) return undefined;
  const offered = all.filter(([, tool]) => isOffered(tool)).map(([, { name }]) => name!);
  return { tools: hosted, include: include ?? [], maxRuns: maxRuns ?? undefined, offered };
}

function tooMuch(): GatewayError {
  const message = `instructions, tools and text.format must not take more than ${MAX_ECHO} characters together.`;
  return new GatewayError("invalid_body", message, { param: "instructions" });
}
