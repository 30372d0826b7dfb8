import type { CandidateTries } from "../../calls/routing/call-candidates.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { Clock } from "../../lib/clock.ts";
import type { GrowingBytes } from "../../lib/growing-bytes.ts";
import { nextPiece, type PieceReader, ProviderFailure } from "../../providers/interface.ts";
import type { StreamedAnswer } from "../../providers/streamed-answer.ts";
import type { StartedUpstream } from "./start-upstream.ts";
import { beyondLimit } from "./stream-errors.ts";

/** How long the rest of a provider's stream may take behind its [DONE] before its connection is dropped. */
const DRAIN_MS = 1_000;

interface AnswerLimits {
  /** How many answers were asked for. */
  readonly choices: number;
  /** An answer of more fails behind what came before it. */
  readonly maxOutputBytes: number;
}

/** The provider's side of a running stream: what it sends, rewritten, until it is taken. */
export class StreamRelay {
  readonly rewriter: StreamedAnswer;
  readonly candidate: Candidate;
  readonly #tries: CandidateTries;
  readonly #reader: PieceReader<unknown>;
  readonly #limits: AnswerLimits;
  readonly #steadyClock: Clock;
  readonly #output: GrowingBytes;
  #reading: ReturnType<PieceReader<unknown>["read"]> | undefined;
  #readingSinceMs: number | undefined;
  #isCalledOff = false;

  constructor(
    { reader, rewriter, output }: StartedUpstream,
    tries: CandidateTries,
    limits: AnswerLimits,
    steadyClock: Clock,
  ) {
    this.rewriter = rewriter;
    this.candidate = tries.candidate;
    this.#tries = tries;
    this.#reader = reader;
    this.#limits = limits;
    this.#steadyClock = steadyClock;
    this.#output = output;
  }

  get pendingBytes(): number {
    return this.#output.length;
  }

  /** Since when the provider has sent no event while one is awaited: no comment ends its silence. */
  get readingSinceMs(): number | undefined {
    return this.#reading === undefined ? undefined : this.#readingSinceMs;
  }

  /** What is pending, with `ending` behind it. */
  takeOutput(ending = ""): Uint8Array {
    // Until it is read on, the silence is the client's.
    if (this.#reading === undefined) this.#readingSinceMs = undefined;
    this.#output.add(ending);
    return this.#output.take();
  }

  /** Reads one piece of the provider's stream, at once where it has come. False where that has ended. */
  read(): boolean | Promise<boolean> {
    const { rewriter } = this;
    if (this.#isBeyondLimit()) throw beyondLimit();
    if (rewriter.isDone) {
      this.#drain();
      return false;
    }
    if (rewriter.failure) throw rewriter.failure;
    const piece = this.#reading === undefined ? this.#reader.take?.() : undefined;
    if (piece !== undefined) {
      this.#take(piece);
      return true;
    }
    this.#readingSinceMs ??= this.#steadyClock.nowMs();
    this.#reading ??= this.#reader.read();
    return this.#readOn(this.#reading);
  }

  async #readOn(reading: ReturnType<PieceReader<unknown>["read"]>): Promise<boolean> {
    let read: Awaited<typeof reading>;
    try {
      read = await reading;
    } catch (cause) {
      // What breaks behind the end of the answer takes nothing from it.
      if (this.#isCalledOff || this.callOff()) return false;
      throw new ProviderFailure("unavailable", "the provider's stream broke", { cause });
    }
    if (this.#reading !== reading) return true;
    this.#reading = undefined;
    const before = this.#output.length;
    this.#take(read.done ? undefined : read.value);
    return !read.done || this.#output.length > before;
  }

  /** A piece, or the end. */
  #take(piece: unknown): void {
    const { events } = this.rewriter;
    if (piece === undefined) this.rewriter.end();
    else this.rewriter.push(piece);
    if (piece === undefined || this.rewriter.events > events) this.#readingSinceMs = undefined;
    this.#assertWithinLimit();
  }

  #assertWithinLimit(): void {
    if (this.#isBeyondLimit()) throw beyondLimit();
  }

  #isBeyondLimit(): boolean {
    return this.rewriter.outputBytes > this.#limits.maxOutputBytes;
  }

  /** True where the answer is whole, and what it took is still to be told. */
  get lacksUsage(): boolean {
    const { hasFinished, isDone, failure, usage } = this.rewriter;
    return hasFinished && !isDone && failure === undefined && usage?.estimated !== false;
  }

  /** Reads on until the provider reports usage, or ends. */
  async readUsage(): Promise<void> {
    try {
      while (this.lacksUsage && (await this.read()));
    } catch {
      // What was counted here stands for it.
    }
  }

  /** Reads on after an error of the provider until it reports usage, or ends. */
  async readUsageBehindError(): Promise<void> {
    try {
      while (this.rewriter.mayReportUsage) {
        const piece = await nextPiece(this.#reader);
        if (piece === undefined) return;
        this.rewriter.pushBehindError(piece);
      }
    } catch {
      // What was counted here stands for it.
    }
  }

  /** Tells the endpoint's health how the call ended; once. */
  end(isSuccess: boolean): void {
    this.#tries.end(isSuccess);
  }

  /** Waits no longer for the end, where all that was asked for has come; else, and the second time, false. */
  callOff(): boolean {
    const { rewriter } = this;
    if (this.#isCalledOff || !rewriter.hasAnswered(this.#limits.choices)) return false;
    this.#isCalledOff = true;
    this.cancel();
    return true;
  }

  /** The rest is not needed. */
  cancel(): void {
    this.#reader.cancel().catch(() => {});
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
