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
import type { ChainPlace } from "./response-store.ts";
import { itemsJson, storedInput } from "./stored-items.ts";

/** What the call of a background response has come to. */
export interface BackgroundProgress {
  /** Of the candidate that was last called. */
  renderer: ResponseRenderer | undefined;
  failure: GatewayError | undefined;
  /** What a call that failed is charged for. Undefined if it costs nothing. */
  charge: Pick<AnswerFacts, "usage" | "costUsd"> | undefined;
  /** Whether the request asks for the stream of its events. */
  readonly isStreamed: boolean;
}

function newProgress(isStreamed: boolean): BackgroundProgress {
  return { renderer: undefined, failure: undefined, charge: undefined, isStreamed };
}

/** Sent when a background response begins: that it is created and that it waits. */
export const BEGUN_EVENTS = 2;

/** A request of the Responses API as it was accepted. */
export class AcceptedResponse implements AcceptedRequest {
  /** In the words of the chat call. */
  readonly fields: ChatRequest;
  /** Set where a thread has read the body, and that alone. */
  readonly bodyHash: string | undefined;
  readonly facts: ResponsesFacts;
  /** Where it continues a stored response. */
  readonly place: ChainPlace | undefined;
  /** Unix seconds. */
  readonly createdAt: number;
  /** Where it runs without its client. */
  readonly background: BackgroundProgress | undefined;
  /** Undefined where the gateway runs no tools for it. */
  readonly hosted: HostedTools | undefined;
  /** Of its prompt, with the functions that the model is offered by the gateway. */
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
    this.size = hosted === undefined ? facts.size : bothSizes(facts.size, hosted.known.size);
    this.fields = facts.chat;
    this.bodyHash = prepared instanceof LongResponses ? prepared.bodyHash : undefined;
    this.place = prepared.place;
    this.createdAt = createdAt;
    this.background = facts.isBackground ? newProgress(facts.isStreamed) : undefined;
  }

  /** Whether a thread has its input, as long as a provider may be sent it. */
  get isLong(): boolean {
    return this.#prepared instanceof LongResponses;
  }

  /** As it came, with what its preset adds; undefined where a thread has it. */
  get body(): ResponsesBody | undefined {
    return this.#prepared instanceof LongResponses ? undefined : this.#prepared.turn.body;
  }

  /** JSON of its own input as it is stored, with commas between the items. */
  storedInput(name: string): Uint8Array | Promise<Uint8Array> {
    if (this.#prepared instanceof LongResponses) return this.#prepared.storedInput(name);
    return new TextEncoder().encode(itemsJson(storedInput(this.#prepared.turn, name)));
  }
}

export type AdmittedResponse = AdmittedCall<AcceptedResponse>;

/** Where the gateway could run none of the tools, they are left to providers that run them themselves. */
function runsHere(
  facts: ResponsesFacts,
  registry: ToolRegistry,
): facts is ResponsesFacts & { readonly hosted: HostedFacts } {
  return facts.hosted?.tools.some(([, { type }]) => registry.runs(type)) === true;
}

/** @param prepared whose body has passed its checks. Throws 400. */
export function acceptResponse(
  prepared: ShortTurn | LongResponses,
  createdAt: number,
  registry: ToolRegistry,
): AcceptedResponse {
  const facts = prepared instanceof LongResponses ? prepared.facts : factsOf(prepared.turn);
  const hosted = runsHere(facts, registry) ? new HostedTools(facts.hosted, registry) : undefined;
  return new AcceptedResponse(prepared, facts, createdAt, hosted);
}
