import type { StatementEffect } from "../../../../db/ledger/effects.ts";
import type { UndeliveredChargeJournal } from "../../../billing/ledger/undelivered-charge-journal.ts";
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
import type { CallDependencies } from "../routing/failover.ts";
import type { Candidate } from "../routing/plan-route.ts";

/** The minimum wait of a failed stream's end for its charge, even after the total timeout. */
const MIN_CHARGE_WAIT_MS = 2_000;

export interface StreamChargeDependencies extends ChargeDependencies {
  readonly calls: CallDependencies;
  readonly notes: UndeliveredChargeJournal;
  readonly totalTimeoutMs: number;
  onError(error: unknown, requestId: string): void;
}

/** The charge of a stream, from the usage that the provider reported, or from the delivered answer. */
export class StreamCharge<Request extends AcceptedRequest> implements StepMoney {
  readonly #charge: CallCharge;
  readonly #dependencies: StreamChargeDependencies;
  readonly #form: StreamForm<Request>;
  readonly #admitted: AdmittedCall<Request>;
  readonly #beganMs: number;
  #answer: StreamedAnswer | undefined;
  #candidate: Candidate | undefined;
  #checkpoints: StreamCheckpoints | undefined;

  /** @param beganMs on the steady clock */
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

  /**
   * Starts the charge, after the candidate has sent the first event of the answer. Returns its checkpoints.
   */
  begin(answer: StreamedAnswer, candidate: Candidate): StreamCheckpoints {
    this.#answer = answer;
    this.#candidate = candidate;
    const { isDeliveredWhole } = this.#form;
    this.#checkpoints = new StreamCheckpoints(() =>
      this.#charge.checkpoint(isDeliveredWhole === true ? this.#zeroFigures() : this.figures()),
    );
    return this.#checkpoints;
  }

  get hasBegun(): boolean {
    return this.#answer !== undefined;
  }

  /** True if a checkpoint was started and its outcome is not known. */
  get isWriting(): boolean {
    return this.#checkpoints?.isWriting === true;
  }

  /** Resolves when a checkpoint covers the answer so far. */
  cover(): Promise<void> {
    return this.#checkpoints!.cover(this.#answer!.outputTokens);
  }

  checkpoint(): Promise<void> {
    return this.#checkpoints!.renew(this.#answer!.outputTokens);
  }

  reserveStep(candidate: Candidate, usage: Usage, step: StepBound): Promise<boolean> {
    return this.#charge.cover(candidate, usage, step);
  }

  /** Starts a checkpoint if one is due although nothing new is delivered. */
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

  /** Resolves when the charge is durable, together with the stored answer. */
  settle(
    status: 200 | 499,
    figures: MeteredFigures = this.figures(),
    storable?: StoredIdempotentResult,
    also?: StatementEffect,
  ): Promise<void> {
    this.#charge.note(figures);
    return this.#charge.settle(figures, status, this.#admitted.log.errorCode, storable, also);
  }

  /** Settles when no caller waits for the outcome. Reports an error. */
  settleInBackground(status: 200 | 499): Promise<void> {
    return this.#reported(this.settle(status));
  }

  /**
   * Charges what a failed stream has delivered. Resolves when the charge is durable, or at the total timeout
   * but not before a minimum wait. The charge then continues in the background.
   */
  async settleInTime(): Promise<void> {
    await this.#finishesWithin(this.settleInBackground(200));
  }

  /** Settles a stream that is not charged, with the timeouts of `settleInTime`. */
  async settleAtZeroInTime(): Promise<void> {
    await this.#finishesWithin(this.settleAtZeroInBackground());
  }

  async #finishesWithin(written: Promise<void>): Promise<void> {
    const { calls, totalTimeoutMs } = this.#dependencies;
    const leftMs = this.#beganMs + totalTimeoutMs - calls.steadyClock.nowMs();
    const waitMs = Math.max(leftMs, MIN_CHARGE_WAIT_MS);
    await finishesWithin(written, calls.steadyClock, waitMs);
  }

  /** Settles at zero after a checkpoint, because nothing was delivered. Reports an error. */
  settleAtZeroInBackground(): Promise<void> {
    const { notes } = this.#dependencies;
    const waived = this.#charge.settleAtZero(this.#zeroFigures());
    this.recordUndelivered();
    return this.#reported(waived.then(() => notes.remove(this.#admitted.requestId)));
  }

  /**
   * Records that the answer was not delivered. If the database charges it, the amount is refunded. A call
   * with an idempotency key is not recorded, because a repeated call can deliver its answer.
   */
  recordUndelivered(): void {
    const { claim, hold } = this.#admitted;
    if (claim === undefined) this.#dependencies.notes.add(hold);
  }

  /** Releases the hold. Changes nothing if a charge or a checkpoint is pending or durable. */
  release(): void {
    this.#charge.release();
  }

  #zeroFigures(): MeteredFigures {
    return this.figures(estimatedUsage(0, 0));
  }

  #reported(written: Promise<void>): Promise<void> {
    return written.catch((error) => this.#dependencies.onError(error, this.#admitted.requestId));
  }
}

/** Limits for delivery beyond the last durable checkpoint. */
export const MAX_AHEAD_TOKENS = 256;
export const MAX_AHEAD_MS = 1_000;
/** A new checkpoint starts at half of these limits, so that delivery does not wait for it. */
const BEGIN_AHEAD_TOKENS = 128;
const BEGIN_AHEAD_MS = 500;

/**
 * Keeps the durable charge close to what was delivered, in case of a crash. Times are those of a steady
 * clock.
 */
export class StreamCheckpoints {
  readonly #write: () => Promise<void>;
  #durableTokens = -1;
  #seenTokens = 0;
  /** The time at which the first token beyond the last durable checkpoint arrived. */
  #aheadSinceMs: number | undefined;
  /** The time at which the first token beyond the running checkpoint arrived. */
  #aheadOfRunningSinceMs: number | undefined;
  #running: Promise<void> | undefined;
  #runningTokens = 0;

  /** Constructs the checkpoints. `write` makes the charge for everything received so far durable. */
  constructor(write: () => Promise<void>) {
    this.#write = write;
  }

  /** True if a checkpoint was started and its outcome is not known. */
  get isWriting(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when a checkpoint covers this number of tokens. */
  async cover(tokens: number): Promise<void> {
    this.#seenTokens = Math.max(this.#seenTokens, tokens);
    while (this.#durableTokens < tokens) await this.#begin();
  }

  /** Resolves when a checkpoint that starts now is durable, because usage can grow without output tokens. */
  async renew(tokens: number): Promise<void> {
    this.#seenTokens = Math.max(this.#seenTokens, tokens);
    // An error of this checkpoint shows in the next one.
    await this.#running?.catch(() => undefined);
    await this.#begin();
  }

  /**
   * Returns undefined if an answer of this number of tokens can be delivered immediately. Otherwise returns a
   * promise that resolves when it can be delivered.
   */
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

  /** Starts a checkpoint if one is due although nothing new is delivered. */
  tick(nowMs: number): void {
    if (this.#aheadSinceMs === undefined || nowMs - this.#aheadSinceMs < BEGIN_AHEAD_MS) return;
    this.#beginUnwatched();
  }

  #beginUnwatched(): void {
    if (this.#running) return;
    // If the database keeps failing, the error is reported when delivery has to wait for a checkpoint.
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
