import { clientClosed, GatewayError } from "../../../lib/errors.ts";
import { ByteBuffer } from "../../../lib/growing-bytes.ts";
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
import { type CallDependencies, Failover } from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";

/** Events without content, kept back until some comes, may take this much. */
const MAX_HELD_BACK_BYTES = 65_536;

/** A provider's stream that has sent its first event. */
export interface StartedStream extends OpenedStream {
  /** What the answer adds to, with the first event in it. */
  readonly pending: ByteBuffer;
}

/** One call of a provider. */
class Attempt extends ProviderCall implements EventListenerObject {
  /** True where it was aborted because the first event did not come in time. */
  isExpired = false;

  /** The abort of all attempts. */
  handleEvent(): void {
    this.abort();
  }
}

/** The provider's side of a stream: candidates are tried, each until its first event comes or its time is up. */
export class StreamUpstream<Request extends AcceptedRequest> {
  readonly tries: Failover;
  readonly #dependencies: CallDependencies;
  readonly #form: StreamForm<Request>;
  readonly #admitted: AdmittedCall<Request>;
  readonly #steps: StepMoney;
  /** Ends the attempt under way, and the stream that came of one. */
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
    this.tries = new Failover(dependencies, admitted, this.#abort);
  }

  /** Why the gateway itself ended the stream; the first reason stands. */
  get failure(): GatewayError | undefined {
    return this.#failure;
  }

  /** The stream of the first candidate that answers. Rejects with the caller's error where none does. */
  start(): Promise<StartedStream> {
    const { preparation } = this.#admitted;
    return preparation === undefined
      ? this.#firstAnswer()
      : this.#prepare(preparation).then(() => this.#firstAnswer());
  }

  #firstAnswer(): Promise<StartedStream> {
    return this.tries.firstAnswer((candidate) => this.#try(candidate));
  }

  async #prepare(preparation: Preparation): Promise<void> {
    const { requestId, keeping, log, hold } = this.#admitted;
    const { organizationId } = hold;
    try {
      const { signal } = this.#abort;
      const prepared = preparation({ organizationId, requestId, signal });
      const isWhole = await traced(log.trace, "prepare", prepared);
      if (!isWhole) keeping?.end();
    } catch (error) {
      throw this.#abort.aborted ? clientClosed(error) : error;
    }
  }

  /** Ends the stream for a reason of the gateway's own. */
  fail(failure: GatewayError): void {
    this.#failure ??= failure;
    this.#abort.abort();
  }

  /** Stops the provider: nothing more is needed of it. */
  stop(): void {
    this.#abort.abort();
  }

  /** Reports to the endpoint's health how the call that was answered ended; once. */
  end(isSuccess: boolean, outputTokens?: number): void {
    this.tries.end(isSuccess, outputTokens);
  }

  /** Gives up an attempt that has waited for its first event for `afterMs`. */
  expire(nowMs: number, afterMs: number): void {
    const attempt = this.#running;
    if (attempt === undefined || nowMs - this.#attemptBeganMs < afterMs) return;
    attempt.isExpired = true;
    attempt.abort();
  }

  async #try(candidate: Candidate): Promise<StartedStream> {
    const { requestId, startedMs, log } = this.#admitted;
    log.queuedMs ??= performance.now() - startedMs;
    const attempt = new Attempt(requestId, true);
    attempt.aimAt(candidate, this.tries, log.traceparent);
    this.#abort.addEventListener("abort", attempt);
    // An abort while the candidate was chosen emits no further event.
    if (this.#abort.aborted) attempt.abort();
    this.#attemptBeganMs = this.#dependencies.steadyClock.nowMs();
    this.#running = attempt;
    try {
      const started = await this.#firstEvent(attempt, candidate);
      if (this.#form.keepsBody?.(this.#admitted.request) !== true) log.releaseBody?.();
      return started;
    } finally {
      this.#running = undefined;
    }
  }

  /** Throws ProviderFailure where none comes. */
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

/** What has no content is held back: until something was said, another provider can still take over. */
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
  // A GatewayError states why the gateway itself could not call the provider.
  if (error instanceof ProviderFailure || error instanceof GatewayError) return error;
  if (attempt.aborted) return new ProviderFailure("aborted", "the call was aborted");
  return new ProviderFailure("unavailable", "the provider's stream broke before its first event", {
    cause: error,
  });
}
