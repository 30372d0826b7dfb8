import { GatewayError } from "../../lib/errors.ts";
import { type PromptSize, promptSize } from "../chat-completions/cost-bound.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { chatRequestOf } from "./chat-request.ts";
import { type HostedUse, hostedUseOf, isSentHosted } from "./hosted-tools.ts";
import { assertCalled, turnItems } from "./item-references.ts";
import { customToolsOf, type Item, type ResponsesTurn, type Tool } from "./request.ts";
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
  readonly customTools: ReadonlySet<string>;
  /** What it asks of tools that a provider runs; undefined where a chat has words for all of it. */
  readonly hosted?: HostedUse | undefined;
  /** Whether its response can be continued. */
  readonly isStored: boolean;
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
  const foreign = turnItems(turn).filter(isForeignItem);
  const echo = echoOf(body);
  if (echo.length > MAX_ECHO) throw tooMuch();
  return {
    chat,
    untranslated: untranslated.slice(0, MAX_LISTED),
    size: withForeign(promptSize(chat), foreign, body.tools ?? []),
    hosted: hostedUseOf(body, foreign.length > 0),
    echo,
    showsSummary: Boolean(body.reasoning?.summary),
    customTools: customToolsOf(body),
    isStored: body.store !== false,
  };
}

/** Items of which a picture is part. */
const PICTURES: ReadonlySet<unknown> = new Set(["computer_call_output", "image_generation_call"]);

function withForeign(size: PromptSize, items: readonly Item[], tools: readonly Tool[]): PromptSize {
  const hosted = tools.filter(isSentHosted);
  if (items.length + hosted.length === 0) return size;
  const texts = items.filter(({ type }) => !PICTURES.has(type));
  const bytes = [...texts, ...hosted].map((one) => Buffer.byteLength(JSON.stringify(one)));
  return {
    ...size,
    bytes: bytes.reduce((sum, more) => sum + more, size.bytes),
    messages: size.messages + items.length,
    media: size.media + items.length - texts.length,
    hasTools: size.hasTools || hosted.length > 0,
  };
}

function tooMuch(): GatewayError {
  const message = `instructions, tools and text.format must not take more than ${MAX_ECHO} characters together.`;
  return new GatewayError("invalid_body", message, { param: "instructions" });
}
