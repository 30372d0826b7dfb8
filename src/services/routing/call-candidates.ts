import type { endpointActor } from "../../../actors/endpoint/actor.ts";
import type { EndpointState } from "../../../actors/endpoint/state.ts";
import type { ActorCell } from "../../../actors/runtime/cell.ts";
import type { ActorRegistry } from "../../../actors/runtime/registry.ts";
import type { Clock } from "../../lib/clock.ts";
import { clientClosed, GatewayError } from "../../lib/errors.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type { Candidate } from "./plan-route.ts";
import { asCallerError } from "./provider-error.ts";

export type EndpointActors = ActorRegistry<EndpointState, (typeof endpointActor)["verbs"]>;

export interface CallDependencies {
  readonly endpoints: EndpointActors;
  readonly clock: Clock;
  random(): number;
}

export interface Served<Answer> {
  readonly answer: Answer;
  readonly candidate: Candidate;
  /** What was tried, in order, for route_explain. */
  readonly trail: readonly string[];
  /** Tells the endpoint's actor how the call ended; once. */
  end(isSuccess: boolean): void;
}

/** Calls in all, first tries of fallbacks included, so that a long list cannot hold a request for ever. */
const MAX_CALLS = 12;
const MAX_RETRY_ROUNDS = 2;
const BASE_DELAY_MS = 100;
const MAX_DELAY_MS = 2_000;

/**
 * Tries the candidates in order until one answers; then, while failures were of a kind that passes,
 * again after a pause with full jitter. Happens only before the first byte of an answer. Throws the
 * caller's error of the last failure, or GatewayError client_closed_request where `signal` aborts.
 */
export async function callCandidates<Answer>(
  dependencies: CallDependencies,
  candidates: readonly Candidate[],
  signal: AbortSignal,
  call: (candidate: Candidate) => Promise<Answer>,
): Promise<Served<Answer>> {
  if (candidates.length === 0) {
    throw new GatewayError("no_provider_available", "No provider is available for this model.", {
      retryAfterSeconds: 5,
    });
  }
  const trail: string[] = [];
  let failure: ProviderFailure | undefined;
  let calls = 0;
  for (let round = 0; round <= MAX_RETRY_ROUNDS; round++) {
    const tried = round === 0 ? byHealth(dependencies, candidates) : candidates;
    const refusedModels = new Set<string>();
    for (const candidate of tried) {
      if (calls >= MAX_CALLS) break;
      if (refusedModels.has(candidate.model.id)) continue;
      const endpoint = dependencies.endpoints.get(candidate.endpointId);
      if (!endpoint.isActive) await endpoint.activate();
      if (round > 0 && !endpoint.turn("takeRetry", undefined)) continue;
      calls++;
      const outcome = await tryOnce(dependencies, endpoint, candidate, call);
      if (!(outcome instanceof ProviderFailure)) {
        trail.push(`${candidate.endpointId}=ok`);
        return { ...outcome, candidate, trail };
      }
      failure = outcome;
      trail.push(`${candidate.endpointId}=${outcome.kind}`);
      if (signal.aborted || outcome.kind === "aborted") throw clientClosed();
      // What one model's provider rejects, another endpoint of the same model rejects too.
      if (outcome.kind === "rejected" || outcome.kind === "content_policy") {
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
    await pause(dependencies, signal, round, failure.retryAfterMs);
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

async function tryOnce<Answer>(
  { clock }: CallDependencies,
  endpoint: EndpointCell,
  candidate: Candidate,
  call: (candidate: Candidate) => Promise<Answer>,
): Promise<Pick<Served<Answer>, "answer" | "end"> | ProviderFailure> {
  const startedMs = clock.nowMs();
  endpoint.turn("begin", undefined);
  try {
    const answer = await call(candidate);
    let isEnded = false;
    const end = (isSuccess: boolean): void => {
      if (isEnded) return;
      isEnded = true;
      const latencyMs = clock.nowMs() - startedMs;
      endpoint.turn(
        "end",
        isSuccess ? { kind: "success", latencyMs } : { kind: "failure", retryAfterMs: undefined },
      );
    };
    return { answer, end };
  } catch (error) {
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
}

/** Failures that another try may not meet. A timeout has used up the caller's patience already. */
function isPassing(failure: ProviderFailure): boolean {
  if (failure.kind === "rate_limited") return (failure.retryAfterMs ?? 0) <= MAX_DELAY_MS;
  return failure.kind === "unavailable";
}

async function pause(
  { clock, random }: CallDependencies,
  signal: AbortSignal,
  round: number,
  retryAfterMs: number | undefined,
): Promise<void> {
  const ceilingMs = Math.min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** round);
  const delayMs = Math.max(random() * ceilingMs, retryAfterMs ?? 0);
  await new Promise<void>((resolve) => {
    const cancel = clock.after(delayMs, finish);
    function finish(): void {
      cancel();
      signal.removeEventListener("abort", finish);
      resolve();
    }
    signal.addEventListener("abort", finish);
  });
  if (signal.aborted) throw clientClosed();
}
