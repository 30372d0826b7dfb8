import type { EndpointHealth, endpointActor } from "../../../../actors/endpoint/actor.ts";
import type { EndpointState } from "../../../../actors/endpoint/state.ts";
import type { ActorCell } from "../../../../actors/runtime/cell.ts";
import type { ActorRegistry } from "../../../../actors/runtime/registry.ts";
import type { Clock } from "../../../lib/clock.ts";
import { clientClosed, GatewayError, overloaded } from "../../../lib/errors.ts";
import {
  isLoggedVerbosely,
  type RecordedRouting,
  type RequestLog,
} from "../../../lib/request-log.ts";
import { errorType, type TraceSpan } from "../../../lib/trace.ts";
import { ProviderFailure } from "../../../providers/interface.ts";
import type { AbortNotice } from "../../../providers/transport/call-abort.ts";
import type { CallLimits, CallSlots } from "./call-slots.ts";
import type { Candidate } from "./plan-route.ts";
import { asCallerError } from "./provider-error.ts";

export type EndpointActors = ActorRegistry<EndpointState, (typeof endpointActor)["verbs"]>;

export interface CallDependencies {
  readonly endpoints: EndpointActors;
  readonly slots: CallSlots;
  readonly clock: Clock;
  /** A monotonic clock that measures the duration of calls. */
  readonly steadyClock: Clock;
  random(): number;
  /** Returns true if a self-hosted provider fails its health checks. */
  isDown(providerId: string): boolean;
  /** Called when a provider has rejected an organization's BYOK key. */
  onKeyRejected(byokKeyId: string): void;
}

/** The admitted call that candidates are tried for. */
interface TriedCall {
  readonly plan: { readonly candidates: readonly Candidate[] };
  readonly hold: { readonly organizationId: string };
  readonly log: RequestLog;
}

/**
 * The maximum number of provider calls for one request, including the first tries of fallbacks. A long list
 * of fallbacks thus cannot occupy a request indefinitely.
 */
const MAX_CALLS = 12;
const MAX_RETRY_ROUNDS = 2;
const BASE_DELAY_MS = 100;
const MAX_DELAY_MS = 2_000;
/** Several calls are possible for one request: a tool loop makes a call for each step. */
const MAX_RECORDED_TRIES = 24;

/**
 * Failover over the candidates of one call. Tries them in order until one answers. If the failures are
 * retryable, tries again after a pause with full jitter. Servers close idle connections without notice, which
 * says nothing about their health. A try that failed this way is repeated on a new connection, without pause
 * and without using the retry budget. Only used before the first byte of an answer. Call `end` after `run`
 * has resolved.
 */
export class Failover {
  readonly #dependencies: CallDependencies;
  readonly #candidates: readonly Candidate[];
  readonly #abort: AbortNotice;
  readonly #log: RequestLog;
  readonly #owner: string;
  /** The candidates in the order of this round. */
  #tried: readonly Candidate[];
  /** The unhealthy candidates, in the plan's order. */
  readonly #postponed: readonly Candidate[];
  #position = 0;
  #round = 0;
  #calls = 0;
  #startedMs = 0;
  #answeredMs = 0;
  #candidate: Candidate | undefined;
  #endpoint: EndpointCell | undefined;
  /** The trace span of the provider call, if the request is traced. */
  #span: TraceSpan | undefined;
  #failure: ProviderFailure | undefined;
  #failures: string[] | undefined;
  /** Models that a provider rejected in this round. */
  #rejectedModels: Set<string> | undefined;
  #hasAnswered = false;
  #isEnded = false;
  /** Endpoints at which a try failed on a reused connection. */
  #lostEndpoints: Set<string> | undefined;
  /** The concurrency limits in which the running call occupies a slot. */
  #heldLimits: CallLimits | undefined;
  /** Candidates of this round that were skipped because they were at their concurrency limit. */
  #saturated: readonly Candidate[] = NONE;
  #saturatedIds: Set<string> | undefined;
  #waitsUntilMs: number | undefined;

  constructor(dependencies: CallDependencies, call: TriedCall, abort: AbortNotice) {
    const { candidates } = call.plan;
    this.#log = call.log;
    this.#owner = call.hold.organizationId;
    this.#dependencies = dependencies;
    this.#candidates = candidates;
    this.#abort = abort;
    this.#postponed = unhealthyCandidates(dependencies, candidates);
    this.#tried = withLast(candidates, this.#postponed);
    if (this.#postponed.length > 0) this.#routing().postponed = this.unhealthy;
  }

  /** Endpoints that were tried last because their circuit was open. */
  get unhealthy(): readonly string[] {
    return this.#postponed.map(({ endpointId }) => endpointId);
  }

  /**
   * Endpoints that were not called, because an earlier endpoint answered or the maximum number of calls was
   * reached.
   */
  get untried(): readonly string[] {
    if (this.#round > 0) return [];
    return this.#tried.slice(this.#position).map(({ endpointId }) => endpointId);
  }

  /** Endpoints that were skipped because they were at their concurrency limit. */
  get saturated(): readonly string[] {
    return this.#saturatedIds === undefined ? [] : [...this.#saturatedIds];
  }

  /** The candidate that was tried last. */
  get candidate(): Candidate {
    return this.#candidate!;
  }

  get span(): TraceSpan | undefined {
    return this.#span;
  }

  /**
   * True after a try failed because the server had closed a reused connection. Later tries of this request
   * open new connections.
   */
  get onNewConnection(): boolean {
    return this.#lostEndpoints !== undefined;
  }

  /** The tried endpoints in order, each with its result, for route_explain. */
  get attemptLog(): readonly string[] {
    const failures = this.#failures ?? [];
    return this.#hasAnswered ? [...failures, `${this.candidate.endpointId}=ok`] : failures;
  }

  /**
   * Returns the first answer of a candidate to `call`. If no candidate answers, rejects with the caller's
   * error for the last failure. `failureOf` can convert errors before they are classified.
   */
  async run<Answer>(
    call: (candidate: Candidate) => Promise<Answer>,
    failureOf: (error: unknown) => unknown = (error) => error,
  ): Promise<Answer> {
    for (;;) {
      let candidate: Candidate;
      try {
        candidate = await this.#nextCandidate();
      } catch (error) {
        this.#releaseSlot();
        throw error;
      }
      // If no candidate answers, the log line contains only these values.
      this.#log.model = candidate.model.id;
      this.#log.provider = candidate.providerId;
      this.#span = this.#log.trace?.beginCall(candidate);
      try {
        const answer = await call(candidate);
        this.#hasAnswered = true;
        this.#answeredMs = this.#dependencies.steadyClock.nowMs();
        if (this.#log.routing !== undefined || isLoggedVerbosely(this.#log.request)) {
          this.#record("ok", this.#answeredMs);
        }
        return answer;
      } catch (error) {
        this.#recordFailure(failureOf(error));
      }
    }
  }

  /**
   * Returns the next candidate to try. If none is left, throws or rejects with the caller's error for the
   * last failure. If `abort` fires, with GatewayError client_closed_request.
   */
  #nextCandidate(): Candidate | Promise<Candidate> {
    if (this.#candidates.length === 0) {
      throw new GatewayError("no_provider_available", "No provider is available for this model.", {
        retryAfterSeconds: 5,
      });
    }
    const candidate = this.#upcoming();
    const isAtOnce = candidate?.limits === undefined && this.#round === 0;
    if (candidate === undefined || !isAtOnce) return this.#search(candidate);
    const endpoint = this.#endpointOf(candidate);
    return endpoint.isActive ? this.#begin(candidate, endpoint) : this.#search(candidate);
  }

  /**
   * Records the failure of the candidate. Throws if the error is not a provider's failure, or if the call was
   * aborted.
   */
  #recordFailure(error: unknown): void {
    this.#releaseSlot();
    this.#span?.end(errorType(error));
    const failure = noteFailure(this.#endpoint!, error);
    const { endpointId, model, byokKeyId } = this.candidate;
    this.#failure = failure;
    if (byokKeyId !== undefined && failure.status === UNAUTHORIZED) {
      this.#dependencies.onKeyRejected(byokKeyId);
    }
    this.#failures ??= [];
    this.#failures.push(`${endpointId}=${failure.kind}`);
    this.#record(failure.kind, this.#dependencies.steadyClock.nowMs(), failure.status);
    if (this.#abort.aborted || failure.kind === "aborted") throw clientClosed();
    if (failure.lostUsedConnection) {
      this.#lostEndpoints ??= new Set();
      this.#lostEndpoints.add(endpointId);
    }
    // Another endpoint of the same model would reject the request as well.
    if (failure.kind === "rejected" || failure.kind === "content_policy") {
      this.#rejectedModels ??= new Set();
      this.#rejectedModels.add(model.id);
    }
  }

  #routing(): RecordedRouting {
    this.#log.routing ??= { tries: [] };
    return this.#log.routing;
  }

  #record(result: string, nowMs: number, status?: number): void {
    const { tries } = this.#routing();
    if (tries.length >= MAX_RECORDED_TRIES) return;
    const ms = Math.round(nowMs - this.#startedMs);
    tries.push({ endpoint: this.candidate.endpointId, result, status, ms });
  }

  /**
   * Reports the result of the answered call to the endpoint's actor and releases its slot. Only the first
   * call has an effect.
   *
   * @param outputTokens the output tokens of the answer
   */
  end(isSuccess: boolean, outputTokens = 0): void {
    if (this.#isEnded || !this.#hasAnswered) return;
    this.#isEnded = true;
    this.#releaseSlot();
    this.#span?.end(isSuccess ? undefined : "unavailable", {
      "gen_ai.usage.output_tokens": outputTokens,
    });
    if (!isSuccess) this.#endpoint!.turn("fail", BROKEN_OFF);
    else {
      const totalMs = this.#dependencies.steadyClock.nowMs() - this.#startedMs;
      const answeredMs = this.#answeredMs - this.#startedMs;
      this.#endpoint!.turn("succeed", { totalMs, answeredMs, outputTokens });
    }
  }

  /** Returns the next candidate of this round whose model no provider has rejected. */
  #upcoming(): Candidate | undefined {
    if (this.#calls >= MAX_CALLS) return undefined;
    while (this.#position < this.#tried.length) {
      const candidate = this.#tried[this.#position++]!;
      if (this.#rejectedModels?.has(candidate.model.id) !== true) return candidate;
    }
    return undefined;
  }

  /**
   * Returns the next candidate that needs a wait: for its endpoint's actor, a slot, a pause or the retry
   * budget. Begins with `from`.
   */
  async #search(from: Candidate | undefined): Promise<Candidate> {
    let candidate = from;
    for (;;) {
      if (candidate !== undefined) {
        const endpoint = await this.#activeEndpoint(candidate);
        if (await this.#takeSlot(candidate)) {
          if (this.#mayCall(candidate, endpoint)) return this.#begin(candidate, endpoint);
          this.#releaseSlot();
        }
      } else {
        const awaited = await this.#waitForSlot();
        if (awaited !== undefined) {
          return this.#begin(awaited, await this.#activeEndpoint(awaited));
        }
        await this.#nextRound();
      }
      candidate = this.#upcoming();
    }
  }

  async #activeEndpoint(candidate: Candidate): Promise<EndpointCell> {
    const endpoint = this.#endpointOf(candidate);
    if (!endpoint.isActive) await endpoint.activate();
    return endpoint;
  }

  /** Returns false if the endpoint is at its concurrency limit, or if other calls wait for it. */
  async #takeSlot(candidate: Candidate): Promise<boolean> {
    const { limits } = candidate;
    if (limits === undefined) return true;
    if (await this.#dependencies.slots.take(this.#owner, limits)) {
      this.#hold(limits);
      return true;
    }
    this.#saturated = [...this.#saturated, candidate];
    this.#saturatedIds ??= new Set();
    this.#saturatedIds.add(candidate.endpointId);
    this.#routing().full = this.saturated;
    return false;
  }

  /**
   * Waits until a saturated endpoint has a free slot and returns its candidate. Returns undefined after the
   * total wait that a call may have.
   */
  async #waitForSlot(): Promise<Candidate | undefined> {
    const { slots, steadyClock } = this.#dependencies;
    const full = this.#saturated.filter(
      ({ model }) => this.#rejectedModels?.has(model.id) !== true,
    );
    this.#saturated = NONE;
    if (full.length === 0 || this.#calls >= MAX_CALLS) return undefined;
    const nowMs = steadyClock.nowMs();
    this.#waitsUntilMs ??= nowMs + slots.maxWaitMs;
    const options = full.map(({ limits }) => limits!);
    const at = await slots.wait(this.#owner, options, this.#abort, this.#waitsUntilMs - nowMs);
    if (at !== undefined) this.#hold(options[at]!);
    if (this.#abort.aborted) throw clientClosed();
    if (at === undefined) return undefined;
    this.#saturated = full.filter((_, index) => index !== at);
    return full[at];
  }

  #hold(limits: CallLimits): void {
    this.#heldLimits = limits;
    if (this.#abort.aborted) throw clientClosed();
  }

  /** Releases the slot of the call that ran, if it has one. */
  #releaseSlot(): void {
    const held = this.#heldLimits;
    if (held === undefined) return;
    this.#heldLimits = undefined;
    this.#dependencies.slots.release(this.#owner, held);
  }

  #mayCall({ endpointId }: Candidate, endpoint: EndpointCell): boolean {
    if (this.#round === 0) return true;
    const isRepeated = this.#round === 1 && this.#lostEndpoints?.has(endpointId) === true;
    return isRepeated || endpoint.turn("takeRetry", undefined);
  }

  async #nextRound(): Promise<void> {
    const failure = this.#failure;
    const mayGoOn = this.#round < MAX_RETRY_ROUNDS && this.#calls < MAX_CALLS;
    if (failure === undefined && this.#saturatedIds !== undefined) throw allSaturated();
    if (failure === undefined || !isRetryable(failure) || !mayGoOn) {
      throw asCallerError(
        failure ?? new ProviderFailure("unavailable", "no provider was tried"),
        this.attemptLog,
      );
    }
    if (!failure.lostUsedConnection) {
      await pause(this.#dependencies, this.#abort, this.#round, failure.retryAfterMs);
    }
    this.#round++;
    this.#tried = this.#candidates;
    this.#position = 0;
    this.#rejectedModels = undefined;
  }

  #begin(candidate: Candidate, endpoint: EndpointCell): Candidate {
    this.#candidate = candidate;
    this.#endpoint = endpoint;
    this.#calls++;
    this.#startedMs = this.#dependencies.steadyClock.nowMs();
    endpoint.turn("begin", undefined);
    return candidate;
  }

  #endpointOf(candidate: Candidate): EndpointCell {
    return this.#dependencies.endpoints.get(candidate.endpointId);
  }
}

function allSaturated(): GatewayError {
  return overloaded("Every endpoint of this model is at its concurrency limit.");
}

/** Returns this process's measurements of an endpoint. Returns undefined if it was not called recently. */
export function measuredEndpoint(
  endpoints: EndpointActors,
  endpointId: string,
): EndpointHealth | undefined {
  const endpoint = endpoints.peek(endpointId);
  return endpoint?.isActive === true ? endpoint.turn("health", undefined) : undefined;
}

type EndpointCell = ActorCell<EndpointState, (typeof endpointActor)["verbs"]>;

/**
 * Moves endpoints that are down, or whose circuit is open, to the end. They are tried only if no better
 * endpoint is left.
 */
function withLast(
  candidates: readonly Candidate[],
  last: readonly Candidate[],
): readonly Candidate[] {
  if (last.length === 0) return candidates;
  return [...candidates.filter((candidate) => !last.includes(candidate)), ...last];
}

const NONE: readonly Candidate[] = [];

function unhealthyCandidates(
  { endpoints, isDown }: CallDependencies,
  candidates: readonly Candidate[],
): readonly Candidate[] {
  if (candidates.length === 1) return NONE;
  return candidates.filter(
    ({ providerId, endpointId, byokKeyId }) =>
      measuredEndpoint(endpoints, endpointId)?.circuit === "open" ||
      (byokKeyId === undefined && isDown(providerId)),
  );
}

/** Reports a failed call to the endpoint's actor. Throws if the error is not a provider's failure. */
function noteFailure(endpoint: EndpointCell, error: unknown): ProviderFailure {
  if (!(error instanceof ProviderFailure)) {
    endpoint.turn("leave", undefined);
    throw error;
  }
  const isNeutral =
    error.kind === "rejected" ||
    error.kind === "content_policy" ||
    error.kind === "aborted" ||
    error.lostUsedConnection;
  if (isNeutral) endpoint.turn("leave", undefined);
  else {
    const { kind, status } = error;
    endpoint.turn("fail", { kind, status, retryAfterMs: pauseAfter(error) });
  }
  return error;
}

/** An answer that began and did not end as it should. */
const BROKEN_OFF = { kind: "unavailable", status: undefined, retryAfterMs: undefined };
const REJECTED_KEY_PAUSE_MS = 60_000;
const UNAUTHORIZED = 401;

/**
 * Returns the pause before the endpoint is called again: the provider's Retry-After, or a fixed pause after a
 * rejected key.
 */
function pauseAfter({ kind, status, retryAfterMs }: ProviderFailure): number | undefined {
  if (status === UNAUTHORIZED) return REJECTED_KEY_PAUSE_MS;
  return kind === "rate_limited" ? retryAfterMs : undefined;
}

/**
 * Returns true if another try can succeed. A timeout is not retryable, because it has used up the caller's
 * time.
 */
function isRetryable(failure: ProviderFailure): boolean {
  // Providers can ask for minutes. A client does not wait that long.
  if ((failure.retryAfterMs ?? 0) > MAX_DELAY_MS) return false;
  if (failure.isLasting) return false;
  return failure.kind === "rate_limited" || failure.kind === "unavailable";
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
