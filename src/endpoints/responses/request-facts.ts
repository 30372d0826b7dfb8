import { GatewayError } from "../../lib/errors.ts";
import { type PromptSize, promptSize } from "../chat-completions/cost-bound.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { chatRequestOf } from "./chat-request.ts";
import { assertCalled } from "./item-references.ts";
import { customToolsOf, type ResponsesTurn } from "./request.ts";
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
  /** Whether its response can be continued. */
  readonly isStored: boolean;
  /** Whether it runs without its client. */
  readonly isBackground: boolean;
  /** Whether the client asks for events: the call of one that runs in the background has them in any case. */
  readonly isStreamed: boolean;
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
    isStored: body.store !== false,
    isBackground: body.background === true,
    isStreamed: body.stream === true,
  };
}

function tooMuch(): GatewayError {
  const message = `instructions, tools and text.format must not take more than ${MAX_ECHO} characters together.`;
  return new GatewayError("invalid_body", message, { param: "instructions" });
}
