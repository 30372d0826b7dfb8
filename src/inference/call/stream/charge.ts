import type { StatementEffect } from "../../../../db/ledger/effects.ts";
import type { UndeliveredChargeJournal } from "../../../billing/ledger/undelivered.ts";
import { finishesWithin } from "../../../lib/deadlines.ts";
import { estimatedUsage, type Usage } from "../../../lib/usage.ts";
import type { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import type { AdmittedCall } from "../call.ts";
import {
  CallCharge,
  type ChargeDependencies,
  type MeteredFigures,
  type StoredIdempotentResult,
} from "../call-charge.ts";
import type { AcceptedRequest, StepBound, StepMoney, StreamForm } from "../endpoint.ts";
import type { CallDependencies } from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";

/** How long the end of a stream that failed waits for its charge, though its time is up. */
const MIN_CHARGE_WAIT_MS = 2_000;

export interface StreamChargeDependencies extends ChargeDependencies {
  readonly calls: CallDependencies;
  readonly notes: UndeliveredChargeJournal;
  readonly totalTimeoutMs: number;
  onError(error: unknown, requestId: string): void;
}

/** What a stream costs: what the provider reports, or what was seen of its answer. */
export class StreamCharge<Request extends AcceptedRequest> implements StepMoney {
  readonly #charge: CallCharge;
  readonly #dependencies: StreamChargeDependencies;
  readonly #form: StreamForm<Request>;
  readonly #admitted: AdmittedCall<Request>;
  readonly #beganMs: number;
  #answer: StreamedAnswer | undefined;
  #candidate: Candidate | undefined;
  #checkpoints: StreamCheckpoints | undefined;

  /** @param beganMs by the steady clock */
  constructor(
    dependencies: StreamChargeDependencies,
    form: StreamForm<Request>,
    admitted: AdmittedCall<Request>,
    beganMs: number,
  ) {
    this.#charge = new CallCharge(dependencies, admitted);
    this.#dependencies = dependencies;
    this.#form = form;
    this.#admitted = admitted;
    this.#beganMs = beganMs;
  }

  /** The candidate has sent the first event of the answer: from here on there is something to charge. */
  begin(answer: StreamedAnswer, candidate: Candidate): StreamCheckpoints {
    this.#answer = answer;
    this.#candidate = candidate;
    const { isDeliveredWhole } = this.#form;
    this.#checkpoints = new StreamCheckpoints(() =>
      this.#charge.checkpoint(isDeliveredWhole === true ? this.#noFigures() : this.figures()),
    );
    return this.#checkpoints;
  }

  get hasBegun(): boolean {
    return this.#answer !== undefined;
  }

  /** True where a checkpoint was asked for and it is not known what became of it. */
  get isWriting(): boolean {
    return this.#checkpoints?.isWriting === true;
  }

  /** Resolves when a checkpoint covers the answer as it stands. */
  cover(): Promise<void> {
    return this.#checkpoints!.cover(this.#answer!.outputTokens);
  }

  checkpoint(): Promise<void> {
    return this.#checkpoints!.renew(this.#answer!.outputTokens);
  }

  reserveStep(candidate: Candidate, usage: Usage, step: StepBound): Promise<boolean> {
    return this.#charge.cover(candidate, usage, step);
  }

  /** Begins a checkpoint where one is due although nothing new is delivered. */
  tick(nowMs: number): void {
    this.#checkpoints?.tick(nowMs);
  }

  usage(): Usage {
    return this.#form.usage(this.#answer!, this.#admitted.request, this.#candidate!.terms);
  }

  figures(usage = this.usage()): MeteredFigures {
    const latencyMs = this.#dependencies.calls.steadyClock.nowMs() - this.#beganMs;
    return this.#charge.figures(this.#candidate!, usage, latencyMs);
  }

  /** Resolves when the charge is durable, and with it what is kept of the answer. */
  settle(
    status: 200 | 499,
    figures: MeteredFigures = this.figures(),
    kept?: StoredIdempotentResult,
    also?: StatementEffect,
  ): Promise<void> {
    this.#charge.note(figures);
    return this.#charge.settle(figures, status, this.#admitted.log.errorCode, kept, also);
  }

  /** The same, where no caller waits for the outcome: a failure is reported. */
  settleInBackground(status: 200 | 499): Promise<void> {
    return this.#reported(this.settle(status));
  }

  /**
   * Charges what a stream that failed has delivered. Resolves when that is durable, or when the total timeout
   * has passed, though not at once: then the charge follows, however long it takes.
   */
  async settleInTime(): Promise<void> {
    await this.#finishesWithin(this.settleInBackground(200));
  }

  /** The same for a stream that is charged nothing. */
  async waiveInTime(): Promise<void> {
    await this.#finishesWithin(this.settleAtZeroInBackground());
  }

  async #finishesWithin(written: Promise<void>): Promise<void> {
    const { calls, totalTimeoutMs } = this.#dependencies;
    const leftMs = this.#beganMs + totalTimeoutMs - calls.steadyClock.nowMs();
    const waitMs = Math.max(leftMs, MIN_CHARGE_WAIT_MS);
    await finishesWithin(written, calls.steadyClock, waitMs);
  }

  /** Ends the hold behind a checkpoint of what never left: nothing is charged. A failure is reported. */
  settleAtZeroInBackground(): Promise<void> {
    const { notes } = this.#dependencies;
    const waived = this.#charge.settleAtZero(this.#noFigures());
    this.recordUndelivered();
    return this.#reported(waived.then(() => notes.remove(this.#admitted.requestId)));
  }

  /** What the database may charge of it is owed back, unless it is delivered when it is asked for again. */
  recordUndelivered(): void {
    const { claim, hold } = this.#admitted;
    if (claim === undefined) this.#dependencies.notes.add(hold);
  }

  /** Gives the hold back. Where a charge or a checkpoint is under way or durable this changes nothing. */
  release(): void {
    this.#charge.release();
  }

  #noFigures(): MeteredFigures {
    return this.figures(estimatedUsage(0, 0));
  }

  #reported(written: Promise<void>): Promise<void> {
    return written.catch((error) => this.#dependencies.onError(error, this.#admitted.requestId));
  }
}

/** What may be delivered beyond the last durable checkpoint. */
export const MAX_AHEAD_TOKENS = 256;
export const MAX_AHEAD_MS = 1_000;
/** A new checkpoint is begun at half of that, so that delivery need not wait for it. */
const BEGIN_AHEAD_TOKENS = 128;
const BEGIN_AHEAD_MS = 500;

/** Keeps what a crash would bill close behind what was delivered. Times are those of a steady clock. */
export class StreamCheckpoints {
  readonly #write: () => Promise<void>;
  #durableTokens = -1;
  #seenTokens = 0;
  /** When the first token beyond the last durable checkpoint was seen. */
  #aheadSinceMs: number | undefined;
  /** The same, beyond the checkpoint that is being written. */
  #aheadOfRunningSinceMs: number | undefined;
  #running: Promise<void> | undefined;
  #runningTokens = 0;

  /** `write` makes what was received so far durable. */
  constructor(write: () => Promise<void>) {
    this.#write = write;
  }

  /** True where a checkpoint was asked for and it is not known what became of it. */
  get isWriting(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when a checkpoint covers this many tokens. */
  async cover(tokens: number): Promise<void> {
    this.#seenTokens = Math.max(this.#seenTokens, tokens);
    while (this.#durableTokens < tokens) await this.#begin();
  }

  /** Resolves when one is durable that was begun now: what an answer has used may grow without its tokens. */
  async renew(tokens: number): Promise<void> {
    this.#seenTokens = Math.max(this.#seenTokens, tokens);
    // What becomes of it shows in the next one.
    await this.#running?.catch(() => undefined);
    await this.#begin();
  }

  /** Resolves when an answer of this many tokens may be delivered; undefined where it may at once. */
  admit(tokens: number, nowMs: number): Promise<void> | undefined {
    this.#seenTokens = tokens;
    if (tokens <= this.#durableTokens) return undefined;
    this.#aheadSinceMs ??= nowMs;
    if (this.#running && tokens > this.#runningTokens) this.#aheadOfRunningSinceMs ??= nowMs;
    const aheadTokens = tokens - this.#durableTokens;
    if (aheadTokens > MAX_AHEAD_TOKENS || nowMs - this.#aheadSinceMs >= MAX_AHEAD_MS) {
      return this.cover(tokens);
    }
    if (aheadTokens >= BEGIN_AHEAD_TOKENS) this.#beginUnwatched();
    return undefined;
  }

  /** Begins a checkpoint where one is due although nothing new is delivered. */
  tick(nowMs: number): void {
    if (this.#aheadSinceMs === undefined || nowMs - this.#aheadSinceMs < BEGIN_AHEAD_MS) return;
    this.#beginUnwatched();
  }

  #beginUnwatched(): void {
    if (this.#running) return;
    // A failure shows again, and is reported, when delivery has to wait for a checkpoint.
    this.#begin().catch(() => {});
  }

  #begin(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  async #run(): Promise<void> {
    const tokens = this.#seenTokens;
    this.#runningTokens = tokens;
    this.#aheadOfRunningSinceMs = undefined;
    try {
      await this.#write();
      this.#durableTokens = tokens;
      this.#aheadSinceMs = this.#aheadOfRunningSinceMs;
    } finally {
      this.#running = undefined;
    }
  }
}
