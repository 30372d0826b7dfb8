import type { endpointActor } from "../../../actors/endpoint/actor.ts";
import type { EndpointState } from "../../../actors/endpoint/state.ts";
import type { ActorCell } from "../../../actors/runtime/cell.ts";
import type { ActorRegistry } from "../../../actors/runtime/registry.ts";
import type { Clock } from "../../lib/clock.ts";
import { clientClosed, GatewayError } from "../../lib/errors.ts";
import type { AbortNotice } from "../../providers/call-abort.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type { Candidate } from "./plan-route.ts";
import { asCallerError } from "./provider-error.ts";

export type EndpointActors = ActorRegistry<EndpointState, (typeof endpointActor)["verbs"]>;

export interface CallDependencies {
  readonly endpoints: EndpointActors;
  readonly clock: Clock;
  /** Measures how long calls take; nobody sets it back. */
  readonly steadyClock: Clock;
  random(): number;
}

export interface Served<Answer> {
  readonly answer: Answer;
  readonly candidate: Candidate;
  /** Tells the endpoint's actor how the call ended; once. */
  end(isSuccess: boolean): void;
}

/** What a caller does with each candidate that is tried. */
export interface CandidateCall<Raw, Answer> {
  /** Gets what was tried, in order, and what came of it, for route_explain. */
  readonly trail: string[];
  /** Throws ProviderFailure where there is no answer. */
  start(candidate: Candidate): Promise<Raw>;
  /** Reads the answer, at once. Throws ProviderFailure where it is none. */
  accept(raw: Raw, candidate: Candidate): Answer;
}

/** Calls in all, first tries of fallbacks included, so that a long list cannot hold a request for ever. */
const MAX_CALLS = 12;
const MAX_RETRY_ROUNDS = 2;
const BASE_DELAY_MS = 100;
const MAX_DELAY_MS = 2_000;

/**
 * Tries the candidates in order until one answers; then, while failures were of a kind that passes,
 * again after a pause with full jitter. Happens only before the first byte of an answer. Throws the
 * caller's error of the last failure, or GatewayError client_closed_request where `abort` happens.
 */
export async function callCandidates<Raw, Answer>(
  dependencies: CallDependencies,
  candidates: readonly Candidate[],
  abort: AbortNotice,
  call: CandidateCall<Raw, Answer>,
): Promise<Served<Answer>> {
  if (candidates.length === 0) {
    throw new GatewayError("no_provider_available", "No provider is available for this model.", {
      retryAfterSeconds: 5,
    });
  }
  const { trail } = call;
  let failure: ProviderFailure | undefined;
  let calls = 0;
  for (let round = 0; round <= MAX_RETRY_ROUNDS; round++) {
    const tried = round === 0 ? byHealth(dependencies, candidates) : candidates;
    let refusedModels: Set<string> | undefined;
    for (const candidate of tried) {
      if (calls >= MAX_CALLS) break;
      if (refusedModels?.has(candidate.model.id)) continue;
      const endpoint = dependencies.endpoints.get(candidate.endpointId);
      if (!endpoint.isActive) await endpoint.activate();
      if (round > 0 && !endpoint.turn("takeRetry", undefined)) continue;
      calls++;
      const startedMs = dependencies.steadyClock.nowMs();
      endpoint.turn("begin", undefined);
      try {
        const answer = call.accept(await call.start(candidate), candidate);
        trail.push(`${candidate.endpointId}=ok`);
        return new ServedCall(answer, candidate, endpoint, dependencies.steadyClock, startedMs);
      } catch (error) {
        failure = noteFailure(endpoint, error);
      }
      trail.push(`${candidate.endpointId}=${failure.kind}`);
      if (abort.aborted || failure.kind === "aborted") throw clientClosed();
      // What one model's provider rejects, another endpoint of the same model rejects too.
      if (failure.kind === "rejected" || failure.kind === "content_policy") {
        refusedModels ??= new Set();
        refusedModels.add(candidate.model.id);
      }
    }
    if (
      failure === undefined ||
      !isPassing(failure) ||
      round === MAX_RETRY_ROUNDS ||
      calls >= MAX_CALLS
    )
      break;
    await pause(dependencies, abort, round, failure.retryAfterMs);
  }
  throw asCallerError(
    failure ?? new ProviderFailure("unavailable", "no provider was tried"),
    trail,
  );
}

/** Endpoints whose circuit is open come last: they are tried only when nothing better is left. */
function byHealth(
  { endpoints }: CallDependencies,
  candidates: readonly Candidate[],
): readonly Candidate[] {
  if (candidates.length === 1) return candidates;
  const isOpen = (candidate: Candidate): boolean => {
    const endpoint = endpoints.peek(candidate.endpointId);
    return endpoint?.isActive === true && endpoint.turn("health", undefined).circuit === "open";
  };
  const open = candidates.filter(isOpen);
  return open.length === 0
    ? candidates
    : [...candidates.filter((candidate) => !open.includes(candidate)), ...open];
}

type EndpointCell = ActorCell<EndpointState, (typeof endpointActor)["verbs"]>;

class ServedCall<Answer> implements Served<Answer> {
  readonly answer: Answer;
  readonly candidate: Candidate;
  readonly #endpoint: EndpointCell;
  readonly #steadyClock: Clock;
  readonly #startedMs: number;
  #isEnded = false;

  constructor(
    answer: Answer,
    candidate: Candidate,
    endpoint: EndpointCell,
    steadyClock: Clock,
    startedMs: number,
  ) {
    this.answer = answer;
    this.candidate = candidate;
    this.#endpoint = endpoint;
    this.#steadyClock = steadyClock;
    this.#startedMs = startedMs;
  }

  end(isSuccess: boolean): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    const latencyMs = this.#steadyClock.nowMs() - this.#startedMs;
    this.#endpoint.turn(
      "end",
      isSuccess ? { kind: "success", latencyMs } : { kind: "failure", retryAfterMs: undefined },
    );
  }
}

/** Tells the endpoint's actor of a call that failed. Throws what is no failure of the provider. */
function noteFailure(endpoint: EndpointCell, error: unknown): ProviderFailure {
  if (!(error instanceof ProviderFailure)) {
    endpoint.turn("end", { kind: "neutral" });
    throw error;
  }
  const isNeutral =
    error.kind === "rejected" || error.kind === "content_policy" || error.kind === "aborted";
  endpoint.turn(
    "end",
    isNeutral
      ? { kind: "neutral" }
      : {
          kind: "failure",
          retryAfterMs: error.kind === "rate_limited" ? error.retryAfterMs : undefined,
        },
  );
  return error;
}

/** Failures that another try may not meet. A timeout has used up the caller's patience already. */
function isPassing(failure: ProviderFailure): boolean {
  if (failure.kind === "rate_limited") return (failure.retryAfterMs ?? 0) <= MAX_DELAY_MS;
  return failure.kind === "unavailable";
}

async function pause(
  { clock, random }: CallDependencies,
  abort: AbortNotice,
  round: number,
  retryAfterMs: number | undefined,
): Promise<void> {
  const ceilingMs = Math.min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** round);
  const delayMs = Math.max(random() * ceilingMs, retryAfterMs ?? 0);
  await new Promise<void>((resolve) => {
    const listener = { handleEvent: finish };
    const cancel = clock.after(delayMs, finish);
    function finish(): void {
      cancel();
      abort.removeEventListener("abort", listener);
      resolve();
    }
    abort.addEventListener("abort", listener);
  });
  if (abort.aborted) throw clientClosed();
}
