import type { EndpointHealth, endpointActor } from "../../../../actors/endpoint/actor.ts";
import type { EndpointState } from "../../../../actors/endpoint/state.ts";
import type { ActorCell } from "../../../../actors/runtime/cell.ts";
import type { ActorRegistry } from "../../../../actors/runtime/registry.ts";
import type { Clock } from "../../../lib/clock.ts";
import { clientClosed, GatewayError } from "../../../lib/errors.ts";
import {
  isLoggedVerbosely,
  type RecordedRouting,
  type RequestFacts,
} from "../../../lib/request-facts.ts";
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
  /** Measures how long calls take; monotonic. */
  readonly steadyClock: Clock;
  random(): number;
  /** A self-hosted provider fails its health checks. */
  isDown(providerId: string): boolean;
  /** A provider has refused an organization's own key. */
  onKeyRefused(byokKeyId: string): void;
}

/** The admitted call that candidates are tried for. */
interface TriedCall {
  readonly plan: { readonly candidates: readonly Candidate[] };
  readonly hold: { readonly organizationId: string };
  readonly log: RequestFacts;
}

/** Calls in all, first tries of fallbacks included, so that a long list cannot hold a request without end. */
const MAX_CALLS = 12;
const MAX_RETRY_ROUNDS = 2;
const BASE_DELAY_MS = 100;
const MAX_DELAY_MS = 2_000;
/** A request with a tool loop makes several calls. */
const MAX_RECORDED_TRIES = 24;

/**
 * The candidates of one call, tried in order until one answers; then, while failures were of a kind that
 * passes, again after a pause with full jitter. Servers close idle connections without a word, which says
 * nothing of their health: a try that was lost so is repeated on a new connection without pause or budget.
 * Only for before the first byte of an answer. After `firstAnswer` has resolved, call `end`.
 */
export class Failover {
  readonly #dependencies: CallDependencies;
  readonly #candidates: readonly Candidate[];
  readonly #abort: AbortNotice;
  readonly #log: RequestFacts;
  readonly #owner: string;
  /** In the order of this round. */
  #tried: readonly Candidate[];
  /** In the plan's order. */
  readonly #postponed: readonly Candidate[];
  #position = 0;
  #round = 0;
  #calls = 0;
  #startedMs = 0;
  #answeredMs = 0;
  #candidate: Candidate | undefined;
  #endpoint: EndpointCell | undefined;
  /** Of the call of the candidate, where the request is traced. */
  #span: TraceSpan | undefined;
  #failure: ProviderFailure | undefined;
  #failures: string[] | undefined;
  /** By providers of this round. */
  #refusedModels: Set<string> | undefined;
  #hasAnswered = false;
  #isEnded = false;
  /** Those of which a try was lost with a used connection. */
  #lostEndpoints: Set<string> | undefined;
  /** Within which the call that runs has a place. */
  #held: CallLimits | undefined;
  /** Of this round, passed over because they were full. */
  #full: readonly Candidate[] = NONE;
  #fullIds: Set<string> | undefined;
  #waitsUntilMs: number | undefined;

  constructor(dependencies: CallDependencies, call: TriedCall, abort: AbortNotice) {
    const { candidates } = call.plan;
    this.#log = call.log;
    this.#owner = call.hold.organizationId;
    this.#dependencies = dependencies;
    this.#candidates = candidates;
    this.#abort = abort;
    this.#postponed = openOnes(dependencies, candidates);
    this.#tried = withLast(candidates, this.#postponed);
    if (this.#postponed.length > 0) this.#routing().postponed = this.postponed;
  }

  /** Endpoints that came last because their circuit was open. */
  get postponed(): readonly string[] {
    return this.#postponed.map(({ endpointId }) => endpointId);
  }

  /** Endpoints that were not called: one before them answered, or the calls were used up. */
  get left(): readonly string[] {
    if (this.#round > 0) return [];
    return this.#tried.slice(this.#position).map(({ endpointId }) => endpointId);
  }

  /** Endpoints that were passed over because as many calls ran there as may. */
  get full(): readonly string[] {
    return this.#fullIds === undefined ? [] : [...this.#fullIds];
  }

  /** The one that was tried last. */
  get candidate(): Candidate {
    return this.#candidate!;
  }

  get span(): TraceSpan | undefined {
    return this.#span;
  }

  /** True once a try was lost with a connection that had been used before: no other such is trusted then. */
  get onNewConnection(): boolean {
    return this.#lostEndpoints !== undefined;
  }

  /** What was tried, in order, and what came of it, for route_explain. */
  get trail(): readonly string[] {
    const failures = this.#failures ?? [];
    return this.#hasAnswered ? [...failures, `${this.candidate.endpointId}=ok`] : failures;
  }

  /**
   * The first answer that a candidate gives to `call`. Rejects with the caller's error of the last failure
   * where none answers; `failureOf` may say what an error stands for.
   */
  async firstAnswer<Answer>(
    call: (candidate: Candidate) => Promise<Answer>,
    failureOf: (error: unknown) => unknown = (error) => error,
  ): Promise<Answer> {
    for (;;) {
      let candidate: Candidate;
      try {
        candidate = await this.#next();
      } catch (error) {
        this.#giveBack();
        throw error;
      }
      // If there is no answer, its log line has only this.
      this.#log.model = candidate.model.id;
      this.#log.provider = candidate.providerId;
      this.#span = this.#log.trace?.beginCall(candidate);
      try {
        const answer = await call(candidate);
        this.#hasAnswered = true;
        this.#answeredMs = this.#dependencies.steadyClock.nowMs();
        if (this.#log.routing !== undefined || isLoggedVerbosely(this.#log.asked)) {
          this.#record("ok", this.#answeredMs);
        }
        return answer;
      } catch (error) {
        this.#failed(failureOf(error));
      }
    }
  }

  /**
   * The candidate to be tried now. Throws, or rejects with, the caller's error of the last failure where
   * none is left, or GatewayError client_closed_request where `abort` happens.
   */
  #next(): Candidate | Promise<Candidate> {
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

  /** What came of the candidate. Throws what is no failure of a provider, and where the call was aborted. */
  #failed(error: unknown): void {
    this.#giveBack();
    this.#span?.end(errorType(error));
    const failure = noteFailure(this.#endpoint!, error);
    const { endpointId, model, byokKeyId } = this.candidate;
    this.#failure = failure;
    if (byokKeyId !== undefined && failure.status === UNAUTHORIZED) {
      this.#dependencies.onKeyRefused(byokKeyId);
    }
    this.#failures ??= [];
    this.#failures.push(`${endpointId}=${failure.kind}`);
    this.#record(failure.kind, this.#dependencies.steadyClock.nowMs(), failure.status);
    if (this.#abort.aborted || failure.kind === "aborted") throw clientClosed();
    if (failure.lostUsedConnection) {
      this.#lostEndpoints ??= new Set();
      this.#lostEndpoints.add(endpointId);
    }
    // What one model's provider rejects, another endpoint of the same model rejects too.
    if (failure.kind === "rejected" || failure.kind === "content_policy") {
      this.#refusedModels ??= new Set();
      this.#refusedModels.add(model.id);
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
   * Tells the endpoint's actor how the call that was answered ended, and gives its place back; once.
   *
   * @param outputTokens of the answer
   */
  end(isSuccess: boolean, outputTokens = 0): void {
    if (this.#isEnded || !this.#hasAnswered) return;
    this.#isEnded = true;
    this.#giveBack();
    this.#span?.end(isSuccess ? undefined : "unavailable", {
      "gen_ai.usage.output_tokens": outputTokens,
    });
    if (!isSuccess) this.#endpoint!.turn("fail", undefined);
    else {
      const totalMs = this.#dependencies.steadyClock.nowMs() - this.#startedMs;
      const answeredMs = this.#answeredMs - this.#startedMs;
      this.#endpoint!.turn("succeed", { totalMs, answeredMs, outputTokens });
    }
  }

  /** The next one of this round, of a model that no provider refused. */
  #upcoming(): Candidate | undefined {
    if (this.#calls >= MAX_CALLS) return undefined;
    while (this.#position < this.#tried.length) {
      const candidate = this.#tried[this.#position++]!;
      if (this.#refusedModels?.has(candidate.model.id) !== true) return candidate;
    }
    return undefined;
  }

  /** From a candidate on, what has to be waited for: endpoints, places, pauses, the budget of retries. */
  async #search(from: Candidate | undefined): Promise<Candidate> {
    let candidate = from;
    for (;;) {
      if (candidate !== undefined) {
        const endpoint = await this.#activeEndpoint(candidate);
        if (await this.#takePlace(candidate)) {
          if (this.#mayCall(candidate, endpoint)) return this.#begin(candidate, endpoint);
          this.#giveBack();
        }
      } else {
        const awaited = await this.#waitForPlace();
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

  /** False where as many calls run there as may, or others wait for that. */
  async #takePlace(candidate: Candidate): Promise<boolean> {
    const { limits } = candidate;
    if (limits === undefined) return true;
    if (await this.#dependencies.slots.take(this.#owner, limits)) {
      this.#hold(limits);
      return true;
    }
    this.#full = [...this.#full, candidate];
    this.#fullIds ??= new Set();
    this.#fullIds.add(candidate.endpointId);
    this.#routing().full = this.full;
    return false;
  }

  /** The first of the full endpoints that has a place, within the time that a call may wait in all. */
  async #waitForPlace(): Promise<Candidate | undefined> {
    const { slots, steadyClock } = this.#dependencies;
    const full = this.#full.filter(({ model }) => this.#refusedModels?.has(model.id) !== true);
    this.#full = NONE;
    if (full.length === 0 || this.#calls >= MAX_CALLS) return undefined;
    const nowMs = steadyClock.nowMs();
    this.#waitsUntilMs ??= nowMs + slots.maxWaitMs;
    const options = full.map(({ limits }) => limits!);
    const at = await slots.wait(this.#owner, options, this.#abort, this.#waitsUntilMs - nowMs);
    if (at !== undefined) this.#hold(options[at]!);
    if (this.#abort.aborted) throw clientClosed();
    if (at === undefined) return undefined;
    this.#full = full.filter((_, other) => other !== at);
    return full[at];
  }

  #hold(limits: CallLimits): void {
    this.#held = limits;
    if (this.#abort.aborted) throw clientClosed();
  }

  /** Gives back the place of the call that ran, where it has one. */
  #giveBack(): void {
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
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
    if (failure === undefined && this.#fullIds !== undefined) throw allFull();
    if (failure === undefined || !isRetryable(failure) || !mayGoOn) {
      throw asCallerError(
        failure ?? new ProviderFailure("unavailable", "no provider was tried"),
        this.trail,
      );
    }
    if (!failure.lostUsedConnection) {
      await pause(this.#dependencies, this.#abort, this.#round, failure.retryAfterMs);
    }
    this.#round++;
    this.#tried = this.#candidates;
    this.#position = 0;
    this.#refusedModels = undefined;
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

function allFull(): GatewayError {
  return new GatewayError(
    "overloaded",
    "As many calls as may run at once are running at every endpoint of this model.",
    { retryAfterSeconds: 1 },
  );
}

/** What this process has measured of an endpoint; undefined where it was not called lately. */
export function measuredEndpoint(
  endpoints: EndpointActors,
  endpointId: string,
): EndpointHealth | undefined {
  const endpoint = endpoints.peek(endpointId);
  return endpoint?.isActive === true ? endpoint.turn("health", undefined) : undefined;
}

type EndpointCell = ActorCell<EndpointState, (typeof endpointActor)["verbs"]>;

/** Endpoints that are down, or whose circuit is open, come last: tried only when nothing better is left. */
function withLast(
  candidates: readonly Candidate[],
  last: readonly Candidate[],
): readonly Candidate[] {
  if (last.length === 0) return candidates;
  return [...candidates.filter((candidate) => !last.includes(candidate)), ...last];
}

const NONE: readonly Candidate[] = [];

function openOnes(
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

/** Tells the endpoint's actor of a call that failed. Throws what is no failure of the provider. */
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
  else endpoint.turn("fail", pauseAfter(error));
  return error;
}

const REFUSED_KEY_PAUSE_MS = 60_000;
const UNAUTHORIZED = 401;

/** How long the endpoint is better left alone: what the provider says, or what a refused key costs in tries. */
function pauseAfter({ kind, status, retryAfterMs }: ProviderFailure): number | undefined {
  if (status === UNAUTHORIZED) return REFUSED_KEY_PAUSE_MS;
  return kind === "rate_limited" ? retryAfterMs : undefined;
}

/** Failures that another try may not meet. A timeout has used up the caller's time already. */
function isRetryable(failure: ProviderFailure): boolean {
  // A waiting client is not kept for the minutes that a provider may ask for.
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
