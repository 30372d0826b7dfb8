import type { Clock } from "../../../lib/clock.ts";
import { finishesWithin } from "../../../lib/deadlines.ts";
import { GatewayError } from "../../../lib/errors.ts";
import type { ByteBuffer } from "../../../lib/growing-bytes.ts";
import { nextPiece, type PieceReader, ProviderFailure } from "../../../providers/interface.ts";
import type { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import type { StreamCheckpoints } from "./charge.ts";
import type { StreamOutput } from "./output.ts";
import type { StartedStream } from "./upstream.ts";

/** How long the rest of a provider's stream may take behind its [DONE] before its connection is dropped. */
const DRAIN_MS = 1_000;
/** How long the usage of a whole answer is awaited where its client has gone. */
const USAGE_WAIT_MS = 1_000;
/** How long an error of the provider is kept back for usage that may follow it. */
const ERROR_USAGE_WAIT_MS = 300;

type Reading = ReturnType<PieceReader<unknown>["read"]>;

export interface Membership {
  /** Undefined while no instance can have declared this one dead; else resolves when that is certain again. */
  whenCurrent(): Promise<void> | undefined;
}

export interface RelayParts {
  readonly checkpoints: StreamCheckpoints;
  readonly output: StreamOutput;
  readonly steadyClock: Clock;
  readonly membership: Membership;
  /** How many answers were asked for. */
  readonly choices: number;
  /** An answer of more fails. */
  readonly maxOutputBytes: number;
  /** The provider has ended. */
  onEnd(): Promise<void>;
  onFailure(error: unknown): Promise<void>;
}

/**
 * The way of the pieces: read from the provider when the client asks for more, rewritten by the answer, and
 * delivered when a checkpoint covers them.
 */
export class StreamRelay {
  readonly answer: StreamedAnswer;
  readonly #parts: RelayParts;
  readonly #reader: PieceReader<unknown>;
  /** What the answer has added and was not delivered yet. */
  readonly #pending: ByteBuffer;
  /** False where nothing is pending. */
  #mayDeliver = true;
  #outputTokens: number;
  #events: number;
  #reading: Reading | undefined;
  #silentSinceMs: number | undefined;
  /** A pull waits for a piece of the provider's stream, which ends when that is cancelled. */
  #isWaiting = false;
  #isCalledOff = false;
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

  /** How long the provider has sent no event while one is awaited: no comment ends its silence. */
  silentMs(nowMs: number): number {
    if (this.#reading === undefined || this.#silentSinceMs === undefined) return 0;
    return nowMs - this.#silentSinceMs;
  }

  /** The client asks for more: delivers what is pending, or what the provider sends next. */
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

  /** Delivers nothing from here on. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Cancels the provider's stream. */
  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }

  /** Awaits no end where all that was asked for has come; else, and the second time, false. */
  stopWaitingForEnd(): boolean {
    if (this.#isCalledOff || !this.answer.hasAnswered(this.#parts.choices)) return false;
    this.#isCalledOff = true;
    this.cancel();
    return true;
  }

  /** What is pending, with `ending` behind it. */
  takeRest(ending: string): Uint8Array {
    this.#pending.add(ending);
    return this.#take();
  }

  /** Waits a moment for the usage of a whole answer, which may follow it; undefined where it is there. */
  usageBehindAnswer(): Promise<unknown> | undefined {
    if (!this.#lacksUsage) return undefined;
    return finishesWithin(this.#readUsage(), this.#parts.steadyClock, USAGE_WAIT_MS);
  }

  /** Waits a moment for the usage that a provider may report behind its error. */
  usageBehindError(): Promise<unknown> | undefined {
    if (!this.answer.mayReportUsage) return undefined;
    return finishesWithin(
      this.#readUsageBehindError(),
      this.#parts.steadyClock,
      ERROR_USAGE_WAIT_MS,
    );
  }

  /** At once, where nothing has to be awaited. */
  #deliver(): Promise<void> | undefined {
    const { checkpoints, membership, output, steadyClock } = this.#parts;
    const bytes = this.#take();
    const nowMs = steadyClock.nowMs();
    // An instance that declares this one dead bills the last checkpoint: nothing may leave after that.
    const awaited = checkpoints.admit(this.#outputTokens, nowMs) ?? membership.whenCurrent();
    if (awaited !== undefined) return this.#deliverBehind(awaited, bytes);
    output.deliver(bytes, nowMs);
    return undefined;
  }

  async #deliverBehind(awaited: Promise<void>, bytes: Uint8Array): Promise<void> {
    const { membership, output, steadyClock } = this.#parts;
    await awaited;
    const current = membership.whenCurrent();
    if (current !== undefined) await current;
    if (!this.#isStopped) output.deliver(bytes, steadyClock.nowMs());
  }

  #take(): Uint8Array {
    // Until it is read on, the silence is the client's.
    if (this.#reading === undefined) this.#silentSinceMs = undefined;
    this.#mayDeliver = false;
    return this.#pending.take();
  }

  /** Reads one piece of the provider's stream, at once where it has come. False where that has ended. */
  #read(): boolean | Promise<boolean> {
    const answer = this.answer;
    if (answer.outputBytes > this.#parts.maxOutputBytes) throw beyondLimit();
    if (answer.isDone) {
      this.#drain();
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
      // What breaks behind the end of the answer takes nothing from it.
      if (this.#isCalledOff || this.stopWaitingForEnd()) return false;
      // A GatewayError states what the gateway itself failed at, as a tool that it runs.
      if (cause instanceof GatewayError) throw cause;
      if (cause instanceof ProviderFailure && cause.kind !== "aborted") throw cause;
      throw new ProviderFailure("unavailable", "the provider's stream broke", { cause });
    }
    // Another call has awaited the same piece.
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

  /** A piece, or the end. */
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

  get #lacksUsage(): boolean {
    const { hasFinished, isDone, failure, usage } = this.answer;
    return hasFinished && !isDone && failure === undefined && usage?.estimated !== false;
  }

  /** Until the provider reports usage, or ends. */
  async #readUsage(): Promise<void> {
    try {
      while (this.#lacksUsage && (await this.#read()));
    } catch {
      // What was counted here stands for it.
    }
  }

  async #readUsageBehindError(): Promise<void> {
    try {
      while (this.answer.mayReportUsage) {
        const piece = await nextPiece(this.#reader);
        if (piece === undefined) return;
        this.answer.pushBehindError(piece);
      }
    } catch {
      // What was counted here stands for it.
    }
  }

  /** Reads to the end in the background, so that the connection can be used again. */
  #drain(): void {
    const reader = this.#reader;
    if (reader.isOver === true) return;
    const timer = setTimeout(() => this.cancel(), DRAIN_MS);
    void (async () => {
      try {
        while (!(await reader.read()).done);
      } catch {
        // A connection that breaks behind its [DONE] has said everything.
      } finally {
        clearTimeout(timer);
      }
    })();
  }
}

function beyondLimit(): GatewayError {
  return new GatewayError("provider_error", "The provider went on beyond its limit of tokens.");
}
