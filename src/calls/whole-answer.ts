import type { StatementEffect } from "../../db/ledger/effects.ts";
import type { DeadlineQueue, Expiring } from "../lib/deadlines.ts";
import { clientClosed, GatewayError, stopping } from "../lib/errors.ts";
import { usdNumber } from "../lib/money.ts";
import { traced } from "../lib/trace.ts";
import { ProviderFailure } from "../providers/interface.ts";
import { addChargeHeaders, answerHeaders, explainFailure } from "./answer-headers.ts";
import { type AdmittedCall, type CallOutcome, ProviderCall } from "./call.ts";
import { CallCharge, type ChargeDependencies, type MeteredFigures } from "./call-charge.ts";
import type { AcceptedRequest, AnswerFacts, PaidEndpoint, Preparation } from "./endpoint.ts";
import { type CallDependencies, CandidateTries } from "./routing/call-candidates.ts";
import type { Candidate } from "./routing/plan-route.ts";

export interface WholeAnswerDependencies extends ChargeDependencies {
  readonly calls: CallDependencies;
  /** The total timeout of calls. */
  readonly deadlines: DeadlineQueue;
  /** True once the process ends and deadlines expire for that. */
  isCutShort(): boolean;
}

type WholeOutcome = Extract<CallOutcome, { readonly kind: "whole" }>;

/** Calls providers until one answers; the answer leaves after its charge is durable. */
export async function wholeAnswer<Request extends AcceptedRequest, Answer>(
  dependencies: WholeAnswerDependencies,
  endpoint: PaidEndpoint<Request, Answer>,
  admitted: AdmittedCall<Request>,
): Promise<CallOutcome> {
  const run = new WholeRun(dependencies, endpoint, admitted);
  const { tries, charge } = run;
  try {
    if (admitted.clientSignal.aborted) throw clientClosed();
    if (admitted.preparation !== undefined) await run.prepare(admitted.preparation);
    const answer = await tries.firstAnswer(
      (candidate) => run.call(candidate),
      (error) => run.failureOf(error),
    );
    run.isAnswered = true;
    const figures = run.figuresOf(answer);
    const blocked = admitted.guard?.block;
    if (blocked !== undefined) {
      await run.settleBlocked(figures, blocked);
      throw blocked;
    }
    const outcome = run.outcomeOf(answer, figures);
    const also = endpoint.keep === undefined ? undefined : await run.keep(answer, figures);
    await run.settle(outcome, figures, also);
    if (run.isGone) throw clientClosed();
    return outcome;
  } catch (error) {
    charge.release();
    explainFailure(admitted, tries);
    if (!run.isExpired) throw error;
    throw dependencies.isCutShort() ? stopping() : expired(error);
  } finally {
    run.end();
  }
}

function expired(cause: unknown): GatewayError {
  return new GatewayError("provider_timeout", "The provider did not respond in time.", { cause });
}

/** One whole answer: its calls, what may end them early (the client, the total timeout), its charge. */
class WholeRun<Request extends AcceptedRequest, Answer>
  extends ProviderCall
  implements EventListenerObject, Expiring
{
  readonly tries: CandidateTries;
  readonly charge: CallCharge;
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  isExpired = false;
  isAnswered = false;
  /** The client had gone when the answer was ready. */
  isGone = false;
  readonly #dependencies: WholeAnswerDependencies;
  readonly #endpoint: PaidEndpoint<Request, Answer>;
  readonly #admitted: AdmittedCall<Request>;

  constructor(
    dependencies: WholeAnswerDependencies,
    endpoint: PaidEndpoint<Request, Answer>,
    admitted: AdmittedCall<Request>,
  ) {
    super(admitted.requestId, false);
    this.#dependencies = dependencies;
    this.#endpoint = endpoint;
    this.#admitted = admitted;
    this.tries = new CandidateTries(dependencies.calls, admitted, this);
    this.charge = new CallCharge(dependencies, admitted);
    admitted.clientSignal.addEventListener("abort", this);
    dependencies.deadlines.set(this);
  }

  /** The client went away. */
  handleEvent(): void {
    this.abort();
  }

  /** The total timeout. */
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
      if (!isWhole) this.#admitted.keeping?.end();
    } catch (error) {
      throw clientSignal.aborted ? clientClosed(error) : error;
    }
  }

  call(candidate: Candidate): Promise<Answer> {
    const { log, startedMs } = this.#admitted;
    log.queuedMs ??= performance.now() - startedMs;
    this.aimAt(candidate, this.tries);
    return this.#endpoint.call(this, candidate, this.#admitted);
  }

  failureOf(error: unknown): unknown {
    // Not the caller's doing: an endpoint that never answers must not pass for a healthy one.
    if (!this.isExpired || this.#dependencies.isCutShort()) return error;
    return new ProviderFailure("timeout", "the provider did not answer in time", { cause: error });
  }

  figuresOf(answer: Answer): WholeFigures {
    const { candidate } = this.tries;
    const usage = this.#endpoint.usage(answer, this.#admitted.request, candidate.terms);
    this.tries.end(true, usage.completionTokens);
    this.#admitted.noteServed?.(candidate);
    const latencyMs = performance.now() - this.#admitted.startedMs;
    const figures = this.charge.figures(candidate, usage, latencyMs);
    this.charge.note(figures);
    return { usage, figures };
  }

  /** Of an endpoint that keeps what it answers. */
  keep(answer: Answer, figures: WholeFigures): Promise<StatementEffect | undefined> {
    return this.#endpoint.keep!(answer, this.#admitted, this.#factsOf(figures));
  }

  #factsOf({ usage, figures }: WholeFigures): AnswerFacts {
    const { requestId } = this.#admitted;
    const costUsd = usdNumber(figures.chargeNano);
    return { requestId, candidate: this.tries.candidate, usage, costUsd };
  }

  /** What the client gets, once it is charged. */
  outcomeOf(answer: Answer, charged: WholeFigures): WholeOutcome {
    const { request } = this.#admitted;
    const { figures } = charged;
    const body = this.#endpoint.answer(answer, request, this.#factsOf(charged));
    const headers = answerHeaders(this.#admitted, this.tries.candidate, this.tries);
    headers["content-type"] = this.#endpoint.answerType?.(request, answer) ?? "application/json";
    addChargeHeaders(headers, figures);
    return { kind: "whole", headers, body };
  }

  /** Resolves when the charge is durable, and with it what is kept of the answer. */
  settle(
    outcome: WholeOutcome,
    { figures }: WholeFigures,
    also: StatementEffect | undefined,
  ): Promise<void> {
    const { claim, clientSignal } = this.#admitted;
    this.isGone = clientSignal.aborted;
    if (this.isGone) return this.charge.settle(figures, 499, "client_closed_request");
    const kept = claim && {
      claim,
      headers: outcome.headers,
      body: bytesOf(outcome.body),
      isClaimNeeded: true,
    };
    return this.charge.settle(figures, 200, undefined, kept, also);
  }

  /** The provider has produced what does not leave: it is charged. */
  settleBlocked({ figures }: WholeFigures, blocked: GatewayError): Promise<void> {
    const { log } = this.#admitted;
    log.errorCode = blocked.code;
    return this.charge.settle(figures, 400, blocked.code);
  }

  end(): void {
    // Told already, unless something of the gateway's own failed on the answer.
    this.tries.end(false);
    this.#dependencies.deadlines.cancel(this);
    this.#admitted.clientSignal.removeEventListener("abort", this);
    if (!this.isAnswered) this.#admitted.log.costNano = 0n;
  }
}

interface WholeFigures {
  readonly usage: ReturnType<PaidEndpoint<AcceptedRequest, unknown>["usage"]>;
  readonly figures: MeteredFigures;
}

function bytesOf(body: string | Uint8Array): Uint8Array {
  return typeof body === "string" ? new TextEncoder().encode(body) : body;
}
