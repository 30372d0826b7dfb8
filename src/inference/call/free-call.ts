import { GatewayError } from "../../lib/errors.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type { RateHeaders } from "./admission.ts";
import { type AcceptedCall, ProviderCall } from "./call.ts";
import type { AcceptedRequest } from "./endpoint.ts";
import type { Candidate } from "./routing/plan-route.ts";
import { asCallerError } from "./routing/provider-error.ts";
import type { PaidCall, PaidCallDependencies } from "./run-call.ts";

type AcceptedFreeCall<Request> = Pick<
  AcceptedCall<Request>,
  "caller" | "admittedRateHeaders" | "log" | "lifetime" | "request" | "requestId" | "clientSignal"
>;

/** A question that a provider or the gateway answers without a charge, such as a count of tokens. */
export interface FreeQuestion<Request, Answer> {
  /**
   * Returns true if the candidate can answer. If the first candidate cannot, or if the last one that was
   * called has no such route, the gateway answers.
   */
  isAnsweredBy(candidate: Candidate): boolean;
  /** Asks the candidate. Rejects with ProviderFailure. */
  ask(call: ProviderCall, candidate: Candidate, request: Request): Promise<Answer>;
  /** Returns the gateway's own answer. */
  answerHere(): Promise<Answer>;
}

/** Failures after which another provider can still answer. */
const TRY_NEXT_KINDS: ReadonlySet<ProviderFailure["kind"]> = new Set([
  "rate_limited",
  "timeout",
  "unavailable",
  "misconfigured",
]);

/**
 * Calls that cost nothing, about the models of a paid endpoint. They are routed the same way and count
 * against the key's rate limit, but nothing is held, charged or reported. Their results do not affect the
 * health of candidates, because they say nothing about paid calls.
 */
export class FreeCall<Request extends AcceptedRequest, Answer> {
  readonly #dependencies: Pick<PaidCallDependencies, "admission" | "deadlines">;
  readonly #paid: PaidCall<Request, unknown>;

  constructor(
    dependencies: Pick<PaidCallDependencies, "admission" | "deadlines">,
    paid: PaidCall<Request, unknown>,
  ) {
    this.#dependencies = dependencies;
    this.#paid = paid;
  }

  /** Answers the question. Rejects with the error of the step that rejected or failed it. */
  async run(
    accepted: AcceptedFreeCall<Request>,
    question: FreeQuestion<Request, Answer>,
  ): Promise<{ readonly answer: Answer; readonly headers: RateHeaders }> {
    const { candidates } = await this.#paid.route(accepted);
    const headers = await this.#dependencies.admission.takeRate(accepted);
    accepted.lifetime.responseHeaders = headers;
    const [first] = candidates;
    if (first === undefined) throw unavailable();
    const answer = question.isAnsweredBy(first)
      ? await this.#askInTurn(candidates, accepted, question)
      : await question.answerHere();
    return { answer, headers };
  }

  async #askInTurn(
    candidates: readonly Candidate[],
    { requestId, request, clientSignal }: AcceptedFreeCall<Request>,
    question: FreeQuestion<Request, Answer>,
  ): Promise<Answer> {
    const call = new TimedCall(requestId);
    clientSignal.addEventListener("abort", call);
    const deadline = this.#dependencies.deadlines.add(() => call.expire());
    try {
      return await firstAnswer(
        candidates.filter(question.isAnsweredBy),
        (candidate) =>
          onLiveConnection(call, candidate, () => question.ask(call, candidate, request)),
        question,
      );
    } catch (cause) {
      if (!call.isExpired) throw cause;
      const message = "The provider did not respond in time.";
      throw new GatewayError("provider_timeout", message, { cause });
    } finally {
      deadline.cancel();
      clientSignal.removeEventListener("abort", call);
    }
  }
}

class TimedCall extends ProviderCall implements EventListenerObject {
  isExpired = false;

  constructor(requestId: string) {
    super(requestId, false);
  }

  /** Aborts the call after the client has disconnected. */
  handleEvent(): void {
    this.abort();
  }

  expire(): void {
    this.isExpired = true;
    this.abort();
  }
}

/** Statuses of a server that does not have the route. */
const WITHOUT_ROUTE: ReadonlySet<number | undefined> = new Set([404, 405, 501]);

/**
 * Returns the first answer of a candidate, or the gateway's own answer if the last candidate that was called
 * does not have the route.
 */
async function firstAnswer<Answer>(
  candidates: readonly Candidate[],
  ask: (candidate: Candidate) => Promise<Answer>,
  { answerHere }: Pick<FreeQuestion<never, Answer>, "answerHere">,
): Promise<Answer> {
  let failure: unknown = unavailable();
  let hasNoRoute = false;
  for (const candidate of candidates) {
    try {
      return await ask(candidate);
    } catch (error) {
      if (!(error instanceof ProviderFailure)) throw error;
      failure = asCallerError(error, [candidate.endpointId]);
      hasNoRoute = WITHOUT_ROUTE.has(error.status);
      if (!TRY_NEXT_KINDS.has(error.kind)) break;
    }
  }
  if (hasNoRoute) return answerHere();
  throw failure;
}

/** Repeats the call on a new connection if the server had closed a reused connection. */
async function onLiveConnection<Answer>(
  call: ProviderCall,
  candidate: Candidate,
  ask: () => Promise<Answer>,
): Promise<Answer> {
  call.aimAt(candidate, { onNewConnection: false });
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof ProviderFailure) || !error.lostUsedConnection) throw error;
    call.aimAt(candidate, { onNewConnection: true });
    return ask();
  }
}

function unavailable(): GatewayError {
  return new GatewayError("no_provider_available", "No provider is available for this model.", {
    retryAfterSeconds: 5,
  });
}
