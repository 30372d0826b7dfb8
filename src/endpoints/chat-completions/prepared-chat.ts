import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type { Caller } from "../../calls/caller.ts";
import type { Candidate, RoutePlan } from "../../calls/routing/plan-route.ts";
import type { RequestFacts } from "../../lib/request-facts.ts";
import type { Hold } from "../../money/interface.ts";
import type { PromptSize } from "./cost-bound.ts";
import { type ChatRequest, statedOutputLimit } from "./request.ts";

/** What a chat completion needs of the HTTP request it came with. */
export interface ChatContext {
  readonly caller: Caller;
  readonly requestId: string;
  /** Monotonic milliseconds. */
  readonly startedMs: number;
  readonly request: ChatRequest;
  readonly bodyText: string;
  readonly idempotencyHeader: string | null;
  /** Aborts when the client goes away. */
  readonly clientSignal: AbortSignal;
  readonly log: RequestFacts;
}

/** A chat completion as it arrives. */
export interface ArrivedChat extends ChatContext {
  /** The headers of the rate window where the request took its place in it before; else undefined. */
  readonly takenRate: Readonly<Record<string, string>> | undefined;
  readonly arrival: {
    /** The caller as it stands now. Rejects where its key may not call any more. */
    admitAgain(): Promise<Caller>;
  };
}

/** A chat completion that was admitted: routed, within its limits, and with money held for it. */
export interface AdmittedChat extends ChatContext {
  readonly plan: RoutePlan;
  readonly size: PromptSize;
  readonly hold: Hold;
  readonly hidesReasoning: boolean;
  /** Recorded with the charge. */
  readonly details: Record<string, unknown> | null;
  readonly claim: IdempotencyClaim | undefined;
}

export type ChatOutcome =
  | { readonly kind: "json"; readonly headers: Record<string, string>; readonly body: string }
  | {
      readonly kind: "stream";
      readonly headers: Record<string, string>;
      readonly body: ReadableStream<Uint8Array>;
    }
  /** The stored result of an earlier call with the same idempotency key. */
  | {
      readonly kind: "replay";
      readonly status: number;
      readonly headers: Record<string, string>;
      readonly body: Uint8Array;
    };

/**
 * The limit of output tokens that goes upstream: what the caller set, or what the hold was lowered to. The
 * hold is that of the dearest of its candidates; one that gives less may refuse to be asked for more.
 */
export function sentOutputTokens(
  { request, hold }: AdmittedChat,
  { terms }: Candidate,
): number | undefined {
  if (!hold.isLowered) return statedOutputLimit(request);
  return Math.min(hold.outputTokens, terms.maxOutputTokens);
}

/** The candidates that were tried, and what came of them: put into words only where somebody asks. */
interface Tries {
  readonly trail: readonly string[];
}

/** Headers that tell what the hold was lowered to, and, where that is known, how the call was routed. */
export function answerHeaders(
  chat: AdmittedChat,
  candidate: Candidate | undefined,
  tries: Tries,
): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name in chat.log.headers) headers[name] = chat.log.headers[name]!;
  const { hold } = chat;
  if (hold.isLowered) {
    const sent = candidate === undefined ? hold.outputTokens : sentOutputTokens(chat, candidate);
    headers["x-gateway-max-tokens"] = String(sent);
  }
  const dropped = droppedParameters(chat.plan, candidate);
  if (dropped.length > 0) headers[DROPPED_PARAMETERS] = headerText(dropped.join(", "));
  if (candidate === undefined) return headers;
  headers["x-gateway-provider"] = candidate.providerId;
  headers["x-gateway-model"] = candidate.model.id;
  explain(headers, chat, tries);
  return headers;
}

const DROPPED_PARAMETERS = "x-gateway-dropped-parameters";

/**
 * What the candidate did not get. A stream that is opened while its provider is still silent cannot know
 * which one will serve it: then whatever any of them lacks, so that nothing is dropped without a word.
 */
function droppedParameters(plan: RoutePlan, candidate: Candidate | undefined): readonly string[] {
  if (plan.lacked === undefined) return [];
  if (candidate !== undefined) return plan.lacked.get(candidate)?.listed ?? [];
  return [...new Set([...plan.lacked.values()].flatMap(({ listed }) => listed))];
}

/** Tells, with the error that the call ends with, what was tried, where the caller asked for that. */
export function explainFailure(chat: AdmittedChat, tries: Tries): void {
  if (tries.trail.length === 0) return;
  const headers = { ...chat.log.headers };
  explain(headers, chat, tries);
  chat.log.headers = headers;
}

function explain(
  headers: Record<string, string>,
  { request, plan }: AdmittedChat,
  tries: Tries,
): void {
  if (request.route_explain !== true) return;
  const planned = plan.candidates.map(({ endpointId }) => endpointId).join(", ");
  headers["x-gateway-route-explain"] = headerText(
    `planned: ${planned}; tried: ${tries.trail.join(", ")}`,
  );
}

const MAX_HEADER_CHARACTERS = 2_000;

/** Names come from configurations and may hold anything; a header may not. */
function headerText(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, "?").slice(0, MAX_HEADER_CHARACTERS);
}
