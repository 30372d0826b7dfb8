import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { DeadlineQueue, Expiring } from "../../lib/deadlines.ts";
import {
  clientClosed,
  type ErrorCode,
  GatewayError,
  RETRYABLE_CODES,
  stopping,
} from "../../lib/errors.ts";
import { usdNumber } from "../../lib/money.ts";
import { traced } from "../../lib/trace.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import { addChargeHeaders, answerHeaders, explainFailure } from "./answer-headers.ts";
import { type AdmittedCall, type CallOutcome, ProviderCall } from "./call.ts";
import { CallCharge, type ChargeDependencies, type MeteredFigures } from "./call-charge.ts";
import { bothEffects } from "./completion-events.ts";
import type { AcceptedRequest, AnswerFacts, PaidEndpoint, Preparation } from "./endpoint.ts";
import { type CallDependencies, Failover } from "./routing/failover.ts";
import type { Candidate } from "./routing/plan-route.ts";
import { asStreamError, isOfProvider } from "./routing/provider-error.ts";
import { WholeSteps } from "./whole-steps.ts";

const RETRYABLE: ReadonlySet<ErrorCode> = new Set(RETRYABLE_CODES);

export interface WholeAnswerDependencies extends ChargeDependencies {
  readonly calls: CallDependencies;
  /** The total timeout of calls. */
  readonly deadlines: DeadlineQueue;
  /** True after the process has begun to stop, which expires all deadlines. */
  isAborting(): boolean;
}

type WholeOutcome = Extract<CallOutcome, { readonly kind: "whole" }>;

/**
 * Calls providers until one answers, and returns the answer after its charge is durable. An answer that needs
 * several provider calls is also charged at its end, in one transaction with its result. If it fails after
 * its first step, the steps so far are the answer and are charged.
 *
 * There are two exceptions that charge nothing: the gateway stops, or the call has an idempotency key and
 * another try can succeed. The next call under the key then continues from the stored steps.
 */
export async function wholeAnswer<Request extends AcceptedRequest, Answer>(
  dependencies: WholeAnswerDependencies,
  endpoint: PaidEndpoint<Request, Answer>,
  admitted: AdmittedCall<Request>,
): Promise<CallOutcome> {
  const run = new WholeRun(dependencies, endpoint, admitted);
  const { charge } = run;
  try {
    if (admitted.clientSignal.aborted) throw clientClosed();
    if (admitted.preparation !== undefined) await run.prepare(admitted.preparation);
    await run.loadSteps();
    const { failover } = run;
    const answer = await failover.run(
      (candidate) => run.call(candidate),
      (error) => run.failureOf(error),
    );
    const blocked = admitted.guard?.block;
    const failure = blocked === undefined ? run.failureIn(answer) : undefined;
    run.isAnswered = true;
    const figures = run.figuresOf(answer, failure);
    if (blocked !== undefined) {
      await run.settleBlocked(figures, blocked);
      throw blocked;
    }
    if (failure !== undefined && admitted.clientSignal.aborted) {
      await run.settleAfterDisconnect(figures);
      throw clientClosed();
    }
    const outcome = run.outcomeOf(answer, figures);
    const also =
      endpoint.storeAnswer === undefined || failure !== undefined
        ? undefined
        : await run.storeAnswer(answer, figures);
    await run.settle(outcome, figures, also);
    if (run.isClientGone) throw clientClosed();
    return outcome;
  } catch (error) {
    charge.release();
    explainFailure(admitted, run.failover);
    if (!run.isExpired) throw error;
    throw dependencies.isAborting() ? stopping() : expired(error);
  } finally {
    run.end();
  }
}

function expired(cause: unknown): GatewayError {
  return new GatewayError("provider_timeout", "The provider did not respond in time.", { cause });
}

/**
 * One whole answer: its calls, the events that can end them early (client, total timeout), and its charge.
 */
class WholeRun<Request extends AcceptedRequest, Answer>
  extends ProviderCall
  implements EventListenerObject, Expiring
{
  failover: Failover;
  readonly charge: CallCharge;
  readonly #steps: WholeSteps | undefined;
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  isExpired = false;
  isAnswered = false;
  /** True if the client had disconnected when the answer was ready. */
  isClientGone = false;
  readonly #dependencies: WholeAnswerDependencies;
  readonly #endpoint: PaidEndpoint<Request, Answer>;
  readonly #admitted: AdmittedCall<Request>;

  constructor(
    dependencies: WholeAnswerDependencies,
    endpoint: PaidEndpoint<Request, Answer>,
    admitted: AdmittedCall<Request>,
  ) {
    const takesSteps = endpoint.takesSteps?.(admitted.request) === true;
    super(admitted.requestId, takesSteps);
    this.#dependencies = dependencies;
    this.#endpoint = endpoint;
    this.#admitted = admitted;
    this.failover = this.#failoverFor(admitted.plan.candidates);
    this.charge = new CallCharge(dependencies, admitted);
    const { idempotency } = dependencies;
    if (takesSteps) this.#steps = new WholeSteps(this.charge, idempotency, admitted.claim);
    admitted.clientSignal.addEventListener("abort", this);
    dependencies.deadlines.set(this);
  }

  /** Aborts the call after the client has disconnected. */
  handleEvent(): void {
    this.abort();
  }

  /** Aborts the call at the total timeout. */
  expire(): void {
    this.isExpired = true;
    this.abort();
  }

  async prepare(preparation: Preparation): Promise<void> {
    const { requestId, clientSignal, log, hold } = this.#admitted;
    const { organizationId } = hold;
    try {
      const prepared = preparation({ organizationId, requestId, signal: this.signal });
      const isWhole = await traced(log.trace, "prepare", prepared);
      if (!isWhole) this.#admitted.cacheWriter?.end();
    } catch (error) {
      throw clientSignal.aborted ? clientClosed(error) : error;
    }
  }

  /**
   * Loads the steps of an earlier call under the idempotency key. The candidate of these steps is tried
   * first.
   */
  async loadSteps(): Promise<void> {
    if (this.#steps === undefined) return;
    await this.#steps.load();
    const { candidates } = this.#admitted.plan;
    const inOrder = this.#steps.inOrder(candidates);
    if (inOrder !== candidates) this.failover = this.#failoverFor(inOrder);
  }

  #failoverFor(candidates: readonly Candidate[]): Failover {
    const { log, hold } = this.#admitted;
    return new Failover(this.#dependencies.calls, { plan: { candidates }, log, hold }, this);
  }

  call(candidate: Candidate): Promise<Answer> {
    const { log, startedMs } = this.#admitted;
    log.queuedMs ??= performance.now() - startedMs;
    this.aimAt(candidate, this.failover, log.traceparent);
    return this.#endpoint.call(this, candidate, this.#admitted, this.#steps);
  }

  /**
   * Returns the error of an answer that failed after its first step. Throws the error if nothing is to be
   * charged: if the gateway stops, or if the next call under the idempotency key can succeed.
   */
  failureIn(answer: Answer): GatewayError | undefined {
    const failure = this.#endpoint.failureOf?.(answer);
    const { claim, clientSignal } = this.#admitted;
    if (failure === undefined) return undefined;
    if (clientSignal.aborted) return clientClosed(failure);
    if (this.isExpired && this.#dependencies.isAborting()) throw stopping();
    const error = this.isExpired
      ? expired(failure)
      : asStreamError(failure, this.failover.attemptLog);
    if (claim !== undefined && RETRYABLE.has(error.code)) {
      this.failover.end(!isOfProvider(failure));
      throw error;
    }
    return error;
  }

  failureOf(error: unknown): unknown {
    // A timeout counts as the provider's failure, so that an endpoint that never answers is not considered
    // healthy.
    if (!this.isExpired || this.#dependencies.isAborting()) return error;
    return new ProviderFailure("timeout", "the provider did not answer in time", { cause: error });
  }

  figuresOf(answer: Answer, error: GatewayError | undefined): WholeFigures {
    const { candidate } = this.failover;
    const usage = this.#endpoint.usage(answer, this.#admitted.request, candidate.terms);
    this.failover.end(error === undefined || !isOfProvider(error), usage.completionTokens);
    this.#admitted.recordServed?.(candidate);
    const latencyMs = performance.now() - this.#admitted.startedMs;
    const figures = this.charge.figures(candidate, usage, latencyMs);
    this.charge.note(figures);
    return { usage, figures, error };
  }

  /** Stores the answer, for an endpoint with `keep`. */
  storeAnswer(answer: Answer, figures: WholeFigures): Promise<StatementEffect | undefined> {
    return this.#endpoint.storeAnswer!(answer, this.#admitted, this.#factsOf(figures));
  }

  #factsOf({ usage, figures, error }: WholeFigures): AnswerFacts {
    const { requestId } = this.#admitted;
    const costUsd = usdNumber(figures.chargeNano);
    return { requestId, candidate: this.failover.candidate, usage, costUsd, error };
  }

  /** Returns the response for the client. It is sent after the charge. */
  outcomeOf(answer: Answer, charged: WholeFigures): WholeOutcome {
    const { request } = this.#admitted;
    const { figures } = charged;
    const body = this.#endpoint.answer(answer, request, this.#factsOf(charged));
    const headers = answerHeaders(this.#admitted, this.failover.candidate, this.failover);
    headers["content-type"] = this.#endpoint.answerType?.(request, answer) ?? "application/json";
    addChargeHeaders(headers, figures);
    return { kind: "whole", headers, body };
  }

  /**
   * Resolves when the charge is durable, together with the stored answer. The answer is stored under its
   * idempotency key even if the client has disconnected.
   */
  settle(
    outcome: WholeOutcome,
    { figures, error }: WholeFigures,
    also: StatementEffect | undefined,
  ): Promise<void> {
    const { claim, clientSignal, log } = this.#admitted;
    this.isClientGone = clientSignal.aborted;
    if (this.isClientGone && claim === undefined) {
      return this.charge.settle(figures, 499, "client_closed_request");
    }
    const storable = claim && {
      claim,
      headers: outcome.headers,
      body: bytesOf(outcome.body),
      isClaimNeeded: true,
    };
    const stored = bothEffects(also, this.#steps?.removal);
    if (this.isClientGone)
      return this.charge.settle(figures, 499, "client_closed_request", storable, stored);
    if (error !== undefined) log.errorCode = error.code;
    return this.charge.settle(figures, 200, error?.code, storable, stored);
  }

  /**
   * Charges the steps so far after a disconnect of the client. The next call under the key continues from
   * them.
   */
  settleAfterDisconnect({ figures }: WholeFigures): Promise<void> {
    const also = this.#steps?.payment;
    return this.charge.settle(figures, 499, "client_closed_request", undefined, also);
  }

  /** Charges a blocked answer, because the provider has produced it. */
  settleBlocked({ figures }: WholeFigures, blocked: GatewayError): Promise<void> {
    const { log } = this.#admitted;
    log.errorCode = blocked.code;
    return this.charge.settle(figures, 400, blocked.code, undefined, this.#steps?.payment);
  }

  end(): void {
    // No effect if the result was reported before. It was not if the gateway itself failed to process the
    // answer.
    this.failover.end(false);
    this.#dependencies.deadlines.cancel(this);
    this.#admitted.clientSignal.removeEventListener("abort", this);
    if (!this.isAnswered) this.#admitted.log.costNano = 0n;
  }
}

interface WholeFigures {
  readonly usage: ReturnType<PaidEndpoint<AcceptedRequest, unknown>["usage"]>;
  readonly figures: MeteredFigures;
  readonly error: GatewayError | undefined;
}

function bytesOf(body: string | Uint8Array): Uint8Array {
  return typeof body === "string" ? new TextEncoder().encode(body) : body;
}
