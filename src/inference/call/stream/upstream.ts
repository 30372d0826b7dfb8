import { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { clientClosed, GatewayError } from "../../../lib/errors.ts";
import { traced } from "../../../lib/trace.ts";
import { nextPiece, type PieceReader, ProviderFailure } from "../../../providers/interface.ts";
import type { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { CallAbort } from "../../../providers/transport/call-abort.ts";
import { type AdmittedCall, ProviderCall } from "../call.ts";
import type {
  AcceptedRequest,
  OpenedStream,
  Preparation,
  StepMoney,
  StreamForm,
} from "../endpoint.ts";
import { type CallDependencies, Failover } from "../routing/failover.ts";
import type { Candidate } from "../routing/plan-route.ts";

/** The maximum size of events without content that are withheld until content arrives. */
const MAX_HELD_BACK_BYTES = 65_536;

/** A provider's stream that has sent its first event. */
export interface StartedStream extends OpenedStream {
  /** The buffer that the answer writes to. It contains the first event. */
  readonly pending: ByteBuffer;
}

/** One call of a provider. */
class Attempt extends ProviderCall implements EventListenerObject {
  /** True if it was aborted because the first event did not arrive in time. */
  isExpired = false;

  /** Aborts this attempt, because all attempts are aborted. */
  handleEvent(): void {
    this.abort();
  }
}

/** The provider's side of a stream. Tries candidates, each until its first event or its timeout. */
export class StreamUpstream<Request extends AcceptedRequest> {
  readonly failover: Failover;
  readonly #dependencies: CallDependencies;
  readonly #form: StreamForm<Request>;
  readonly #admitted: AdmittedCall<Request>;
  readonly #steps: StepMoney;
  /** Aborts the running attempt, or the stream that it opened. */
  readonly #abort = new CallAbort();
  #failure: GatewayError | undefined;
  #running: Attempt | undefined;
  #attemptBeganMs = 0;

  constructor(
    dependencies: CallDependencies,
    form: StreamForm<Request>,
    admitted: AdmittedCall<Request>,
    steps: StepMoney,
  ) {
    this.#dependencies = dependencies;
    this.#form = form;
    this.#admitted = admitted;
    this.#steps = steps;
    this.failover = new Failover(dependencies, admitted, this.#abort);
  }

  /** The reason why the gateway itself ended the stream. The first reason counts. */
  get failure(): GatewayError | undefined {
    return this.#failure;
  }

  /**
   * Returns the stream of the first candidate that answers. Rejects with the caller's error if none answers.
   */
  start(): Promise<StartedStream> {
    const { preparation } = this.#admitted;
    return preparation === undefined
      ? this.#firstAnswer()
      : this.#prepare(preparation).then(() => this.#firstAnswer());
  }

  #firstAnswer(): Promise<StartedStream> {
    return this.failover.run((candidate) => this.#try(candidate));
  }

  async #prepare(preparation: Preparation): Promise<void> {
    const { requestId, cacheWriter, log, hold } = this.#admitted;
    const { organizationId } = hold;
    try {
      const { signal } = this.#abort;
      const prepared = preparation({ organizationId, requestId, signal });
      const isWhole = await traced(log.trace, "prepare", prepared);
      if (!isWhole) cacheWriter?.end();
    } catch (error) {
      throw this.#abort.aborted ? clientClosed(error) : error;
    }
  }

  /** Ends the stream for the gateway's own reasons. */
  fail(failure: GatewayError): void {
    this.#failure ??= failure;
    this.#abort.abort();
  }

  /** Stops the provider, whose output is no longer needed. */
  stop(): void {
    this.#abort.abort();
  }

  /** Reports the result of the answered call to the endpoint's health. Only the first call has an effect. */
  end(isSuccess: boolean, outputTokens?: number): void {
    this.failover.end(isSuccess, outputTokens);
  }

  /** Aborts an attempt that has waited for its first event for `afterMs`. */
  expire(nowMs: number, afterMs: number): void {
    const attempt = this.#running;
    if (attempt === undefined || nowMs - this.#attemptBeganMs < afterMs) return;
    attempt.isExpired = true;
    attempt.abort();
  }

  async #try(candidate: Candidate): Promise<StartedStream> {
    const { requestId, startedMs, log, lifetime } = this.#admitted;
    log.queuedMs ??= performance.now() - startedMs;
    const attempt = new Attempt(requestId, true);
    attempt.aimAt(candidate, this.failover, log.traceparent);
    this.#abort.addEventListener("abort", attempt);
    // If the abort happened while the candidate was chosen, no further event follows.
    if (this.#abort.aborted) attempt.abort();
    this.#attemptBeganMs = this.#dependencies.steadyClock.nowMs();
    this.#running = attempt;
    try {
      const started = await this.#firstEvent(attempt, candidate);
      if (this.#form.resendsBody?.(this.#admitted.request) !== true) lifetime.releaseBody?.();
      return started;
    } finally {
      this.#running = undefined;
    }
  }

  /** Resolves at the first event with content. Rejects with ProviderFailure if there is none. */
  async #firstEvent(attempt: Attempt, candidate: Candidate): Promise<StartedStream> {
    let reader: PieceReader<unknown> | undefined;
    try {
      const pending = new ByteBuffer();
      const opened = await this.#form.open(
        attempt,
        candidate,
        this.#admitted,
        pending,
        this.#steps,
      );
      reader = opened.reader;
      await untilBegun(opened, pending);
      return { ...opened, pending };
    } catch (error) {
      reader?.cancel().catch(() => {});
      throw failureOf(attempt, error);
    }
  }
}

/** Withholds events without content. Until the first content, another provider can still take over. */
async function untilBegun({ reader, answer }: OpenedStream, pending: ByteBuffer): Promise<void> {
  for (;;) {
    const piece = await nextPiece(reader);
    if (piece === undefined) answer.end();
    else answer.push(piece);
    if (answer.hasBegun || pending.length > MAX_HELD_BACK_BYTES) return;
    assertGoesOn(answer, piece);
  }
}

function assertGoesOn(answer: StreamedAnswer, piece: unknown): void {
  if (answer.failure) throw answer.failure;
  if (piece !== undefined && !answer.isDone) return;
  throw new ProviderFailure("unavailable", "the provider's stream ended before its first event");
}

function failureOf(attempt: Attempt, error: unknown): unknown {
  if (attempt.isExpired) {
    return new ProviderFailure("timeout", "the provider sent no first event in time");
  }
  // A GatewayError is a failure of the gateway itself to call the provider.
  if (error instanceof ProviderFailure || error instanceof GatewayError) return error;
  if (attempt.aborted) return new ProviderFailure("aborted", "the call was aborted");
  return new ProviderFailure("unavailable", "the provider's stream broke before its first event", {
    cause: error,
  });
}
