import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { Clock } from "../../../lib/clock.ts";
import { finishesWithin } from "../../../lib/deadlines.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { drainInBackground } from "../../../providers/drain.ts";
import { nextPiece, type PieceReader, ProviderFailure } from "../../../providers/interface.ts";
import type { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import type { StreamCheckpoints } from "./charge.ts";
import type { StreamOutput } from "./output.ts";
import type { StartedStream } from "./upstream.ts";

/** The longest wait for the usage of a complete answer after its client has disconnected. */
const USAGE_WAIT_MS = 1_000;
/** The longest time that a provider's error is withheld for usage that can follow it. */
const ERROR_USAGE_WAIT_MS = 300;

type Reading = ReturnType<PieceReader<unknown>["read"]>;

export interface Membership {
  /**
   * Returns undefined while no instance can have declared this one dead. Otherwise returns a promise that
   * resolves when that is certain again.
   */
  whenCurrent(): Promise<void> | undefined;
}

export interface RelayParts {
  readonly checkpoints: StreamCheckpoints;
  readonly output: StreamOutput;
  readonly steadyClock: Clock;
  readonly membership: Membership;
  /** The number of requested choices. */
  readonly choices: number;
  /** The maximum size of an answer. A larger answer fails. */
  readonly maxOutputBytes: number;
  /** Called at the end of the provider's stream. */
  onEnd(): Promise<void>;
  onFailure(error: unknown): Promise<void>;
}

/**
 * Relays a stream: reads pieces from the provider when the client reads, lets the answer rewrite them, and
 * delivers them when a checkpoint covers them.
 */
export class StreamRelay {
  readonly answer: StreamedAnswer;
  readonly #parts: RelayParts;
  readonly #reader: PieceReader<unknown>;
  /** Output of the answer that is not delivered yet. */
  readonly #pending: ByteBuffer;
  /** False if nothing is pending. */
  #mayDeliver = true;
  #outputTokens: number;
  #events: number;
  #reading: Reading | undefined;
  #silentSinceMs: number | undefined;
  /**
   * True while a pull waits for a piece of the provider's stream. The wait ends if the stream is cancelled.
   */
  #isWaiting = false;
  #hasStoppedWaiting = false;
  #isStopped = false;

  constructor({ reader, answer, pending }: StartedStream, parts: RelayParts) {
    this.answer = answer;
    this.#parts = parts;
    this.#reader = reader;
    this.#pending = pending;
    this.#outputTokens = answer.outputTokens;
    this.#events = answer.events;
  }

  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /**
   * Returns the time that the provider has sent no event while one is awaited. Comments in the stream do not
   * count as events.
   */
  silentMs(nowMs: number): number {
    if (this.#reading === undefined || this.#silentSinceMs === undefined) return 0;
    return nowMs - this.#silentSinceMs;
  }

  /** Delivers pending output, or the provider's next output, because the client reads on. */
  async pull(): Promise<void> {
    try {
      while (!this.#isStopped) {
        if (this.#mayDeliver && this.#pending.length > 0) {
          const delivered = this.#deliver();
          if (delivered !== undefined) await delivered;
          return;
        }
        const reading = this.#read();
        this.#isWaiting = reading instanceof Promise;
        const isMore = reading instanceof Promise ? await reading : reading;
        this.#isWaiting = false;
        if (!isMore && !this.#isStopped) return await this.#parts.onEnd();
      }
    } catch (error) {
      this.#isWaiting = false;
      await this.#parts.onFailure(error);
    }
  }

  /** Stops all delivery. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Cancels the provider's stream. */
  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }

  /**
   * Stops waiting for the provider's end marker if all requested choices are complete. Returns false if they
   * are not, or if it was called before.
   */
  stopWaitingForEnd(): boolean {
    if (this.#hasStoppedWaiting || !this.answer.hasAnswered(this.#parts.choices)) return false;
    this.#hasStoppedWaiting = true;
    this.cancel();
    return true;
  }

  /** Returns the pending output, followed by `ending`. */
  takeRest(ending: string): Uint8Array {
    this.#pending.add(ending);
    return this.#take();
  }

  /**
   * Waits briefly for the usage of a complete answer, which can follow it. Returns undefined if the usage has
   * arrived.
   */
  usageAfterAnswer(): Promise<unknown> | undefined {
    if (!this.#isUsageMissing) return undefined;
    return finishesWithin(this.#readUsage(), this.#parts.steadyClock, USAGE_WAIT_MS);
  }

  /** Waits briefly for usage that a provider can report after its error. */
  usageAfterError(): Promise<unknown> | undefined {
    if (!this.answer.mayReportUsage) return undefined;
    return finishesWithin(
      this.#readUsageAfterError(),
      this.#parts.steadyClock,
      ERROR_USAGE_WAIT_MS,
    );
  }

  /** Delivers the pending output. Returns undefined if no wait is needed. */
  #deliver(): Promise<void> | undefined {
    const { checkpoints, membership, output, steadyClock } = this.#parts;
    const bytes = this.#take();
    const nowMs = steadyClock.nowMs();
    // An instance that declares this one dead bills the last checkpoint. Output delivered afterwards
    // would not be billed.
    const awaited = checkpoints.admit(this.#outputTokens, nowMs) ?? membership.whenCurrent();
    if (awaited !== undefined) return this.#deliverAfter(awaited, bytes);
    output.deliver(bytes, nowMs);
    return undefined;
  }

  async #deliverAfter(awaited: Promise<void>, bytes: Uint8Array): Promise<void> {
    const { membership, output, steadyClock } = this.#parts;
    await awaited;
    const current = membership.whenCurrent();
    if (current !== undefined) await current;
    if (!this.#isStopped) output.deliver(bytes, steadyClock.nowMs());
  }

  #take(): Uint8Array {
    // While the client does not read, the idle timeout of the provider does not run.
    if (this.#reading === undefined) this.#silentSinceMs = undefined;
    this.#mayDeliver = false;
    return this.#pending.take();
  }

  /**
   * Reads one piece of the provider's stream. Returns without a promise if the piece has arrived. Returns
   * false at the end of the stream.
   */
  #read(): boolean | Promise<boolean> {
    const answer = this.answer;
    if (answer.outputBytes > this.#parts.maxOutputBytes) throw beyondLimit();
    if (answer.isDone) {
      drainInBackground(this.#reader, this.#parts.steadyClock);
      return false;
    }
    if (answer.failure) throw answer.failure;
    const piece = this.#reading === undefined ? this.#reader.take?.() : undefined;
    if (piece !== undefined) {
      this.#push(piece);
      return true;
    }
    this.#silentSinceMs ??= this.#parts.steadyClock.nowMs();
    this.#reading ??= this.#reader.read();
    return this.#readOn(this.#reading);
  }

  async #readOn(reading: Reading): Promise<boolean> {
    let read: Awaited<Reading>;
    try {
      read = await reading;
    } catch (cause) {
      // An error after the end of the answer does not affect the answer.
      if (this.#hasStoppedWaiting || this.stopWaitingForEnd()) return false;
      // A GatewayError is a failure of the gateway itself, such as a failed tool run.
      if (cause instanceof GatewayError) throw cause;
      if (cause instanceof ProviderFailure && cause.kind !== "aborted") throw cause;
      throw new ProviderFailure("unavailable", "the provider's stream broke", { cause });
    }
    // Another call has processed the same piece.
    if (this.#reading !== reading) return true;
    this.#reading = undefined;
    if (!read.done) {
      this.#push(read.value);
      return true;
    }
    const before = this.#pending.length;
    this.#push(undefined);
    return this.#pending.length > before;
  }

  /** Pushes a piece, or the end if it is undefined. */
  #push(piece: unknown): void {
    const answer = this.answer;
    if (piece === undefined) answer.end();
    else answer.push(piece);
    const { events, outputBytes, outputTokens } = answer;
    if (piece === undefined || events > this.#events) this.#silentSinceMs = undefined;
    this.#events = events;
    this.#outputTokens = outputTokens;
    this.#mayDeliver = true;
    if (outputBytes > this.#parts.maxOutputBytes) throw beyondLimit();
  }

  get #isUsageMissing(): boolean {
    const { hasFinished, isDone, failure, usage } = this.answer;
    return hasFinished && !isDone && failure === undefined && usage?.estimated !== false;
  }

  /** Reads until the provider reports usage, or ends. */
  async #readUsage(): Promise<void> {
    try {
      while (this.#isUsageMissing && (await this.#read()));
    } catch {
      // The gateway's own count is used instead.
    }
  }

  async #readUsageAfterError(): Promise<void> {
    try {
      while (this.answer.mayReportUsage) {
        const piece = await nextPiece(this.#reader);
        if (piece === undefined) return;
        this.answer.pushAfterError(piece);
      }
    } catch {
      // The gateway's own count is used instead.
    }
  }
}

function beyondLimit(): GatewayError {
  return new GatewayError("provider_error", "The provider exceeded its limit of output tokens.");
}
