import type { GatewayError } from "../../../lib/errors.ts";
import type { AdmittedCall } from "../../call/call.ts";
import type { AcceptedRequest, AnswerFacts } from "../../call/endpoint.ts";
import type { ToolRegistry } from "../../tools/registry.ts";
import type { PromptSize } from "../chat-completions/cost-bound.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { bothSizes, HostedTools } from "./hosted-tools.ts";
import { LongResponses } from "./long-responses.ts";
import type { ShortTurn } from "./prepared-turn.ts";
import type { ResponsesBody } from "./request.ts";
import { factsOf, type HostedFacts, type ResponsesFacts } from "./request-facts.ts";
import type { ResponseRenderer } from "./response-renderer.ts";
import type { ChainPosition } from "./response-store.ts";
import { itemsJson, storedInput } from "./stored-items.ts";

/** The progress of a background response. */
export interface BackgroundProgress {
  /** The renderer of the candidate that was called last. */
  renderer: ResponseRenderer | undefined;
  failure: GatewayError | undefined;
  /** The charge of a failed call. Undefined if the call costs nothing. */
  charge: Pick<AnswerFacts, "usage" | "costUsd"> | undefined;
  /** True if the request streams its events. */
  readonly isStreamed: boolean;
}

function newProgress(isStreamed: boolean): BackgroundProgress {
  return { renderer: undefined, failure: undefined, charge: undefined, isStreamed };
}

/** Number of events sent when a background response begins: `response.created` and `response.queued`. */
export const BEGUN_EVENTS = 2;

/** An accepted request of the Responses API. */
export class AcceptedResponse implements AcceptedRequest {
  /** The request, translated to a chat call. */
  readonly fields: ChatRequest;
  /** The hash of the body. Set if a work thread has read the body without stored items. */
  readonly bodyHash: string | undefined;
  readonly facts: ResponsesFacts;
  /** The position in the conversation. Undefined if the request continues no stored response. */
  readonly position: ChainPosition | undefined;
  /** Time of acceptance in Unix seconds. */
  readonly createdAt: number;
  /** The progress of a background response. Undefined for other responses. */
  readonly background: BackgroundProgress | undefined;
  /** The tools that the gateway runs. Undefined if it runs none. */
  readonly hosted: HostedTools | undefined;
  /** Size of the prompt, including the functions that the gateway adds. */
  readonly size: PromptSize;
  readonly #prepared: ShortTurn | LongResponses;

  constructor(
    prepared: ShortTurn | LongResponses,
    facts: ResponsesFacts,
    createdAt: number,
    hosted: HostedTools | undefined,
  ) {
    this.#prepared = prepared;
    this.facts = hosted === undefined ? facts : { ...facts, runsHere: true };
    this.hosted = hosted;
    this.size = hosted === undefined ? facts.size : bothSizes(facts.size, hosted.initial.size);
    this.fields = facts.chat;
    this.bodyHash = prepared instanceof LongResponses ? prepared.bodyHash : undefined;
    this.position = prepared.position;
    this.createdAt = createdAt;
    this.background = facts.isBackground ? newProgress(facts.isStreamed) : undefined;
  }

  /** True if a work thread holds the input. The input can then be as long as a provider accepts. */
  get isLong(): boolean {
    return this.#prepared instanceof LongResponses;
  }

  /** The original body with the members of its preset. Undefined if a work thread holds it. */
  get body(): ResponsesBody | undefined {
    return this.#prepared instanceof LongResponses ? undefined : this.#prepared.turn.body;
  }

  /** Returns the JSON of the request's own input as it is stored: items separated by commas. */
  storedInput(name: string): Uint8Array | Promise<Uint8Array> {
    if (this.#prepared instanceof LongResponses) return this.#prepared.storedInput(name);
    return new TextEncoder().encode(itemsJson(storedInput(this.#prepared.turn, name)));
  }
}

export type AdmittedResponse = AdmittedCall<AcceptedResponse>;

/**
 * Returns true if the gateway can run at least one of the request's tools. Otherwise providers that run the
 * tools themselves get them.
 */
function runsHere(
  facts: ResponsesFacts,
  registry: ToolRegistry,
): facts is ResponsesFacts & { readonly hosted: HostedFacts } {
  return facts.hosted?.tools.some(([, { type }]) => registry.runs(type)) === true;
}

/**
 * Accepts a request. Throws 400 if an item, a tool or a tool's option is invalid.
 *
 * @param prepared the turn, whose body has passed its checks
 */
export function acceptResponse(
  prepared: ShortTurn | LongResponses,
  createdAt: number,
  registry: ToolRegistry,
): AcceptedResponse {
  const facts = prepared instanceof LongResponses ? prepared.facts : factsOf(prepared.turn);
  const hosted = runsHere(facts, registry) ? new HostedTools(facts.hosted, registry) : undefined;
  return new AcceptedResponse(prepared, facts, createdAt, hosted);
}
