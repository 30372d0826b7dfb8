import type { StatementEffect } from "../../../db/ledger/effects.ts";
import {
  CallCharge,
  type ChargeDependencies as CallChargeDependencies,
  type ChargedCall as CallToCharge,
  estimatedUsage,
  type MeteredFigures,
} from "../../calls/call-charge.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { Clock } from "../../lib/clock.ts";
import { doneInTime } from "../../lib/deadlines.ts";
import type { Usage } from "../../lib/usage.ts";
import type { UndeliveredNotes } from "../../money/undelivered.ts";
import type { StreamRelay } from "./stream-relay.ts";

/** How long the end of a stream that failed waits for its charge, though its time is up. */
const MIN_CHARGE_WAIT_MS = 2_000;
/** How long the usage of a whole answer is waited for where its client has gone. */
const USAGE_WAIT_MS = 1_000;
/** How long an error of the provider is kept back for usage that may follow it. */
const ERROR_USAGE_WAIT_MS = 300;

export interface ChargeDependencies extends CallChargeDependencies {
  readonly notes: UndeliveredNotes;
  onError(error: unknown, requestId: string): void;
}

export interface ChargedCall extends CallToCharge {
  readonly requestId: string;
  /** Tokens that are charged where the provider tells none. */
  promptTokens(candidate: Candidate): number;
  /** Set where the answer is kept under an idempotency key. */
  readonly store?: unknown;
}

/** What a running stream costs: what the provider reports, or what was seen of its answer. */
export class StreamCharge {
  readonly #charge: CallCharge;
  readonly #notes: UndeliveredNotes;
  readonly #onError: ChargeDependencies["onError"];
  readonly #call: ChargedCall;
  readonly #relay: StreamRelay;
  readonly #steadyClock: Clock;
  readonly #startedMs: number;

  constructor(
    dependencies: ChargeDependencies,
    call: ChargedCall,
    relay: StreamRelay,
    steadyClock: Clock,
    startedMs: number,
  ) {
    this.#charge = new CallCharge(dependencies, call);
    this.#notes = dependencies.notes;
    this.#onError = dependencies.onError;
    this.#call = call;
    this.#relay = relay;
    this.#steadyClock = steadyClock;
    this.#startedMs = startedMs;
  }

  usage(): Usage {
    const { rewriter, candidate } = this.#relay;
    return (
      rewriter.usage ?? estimatedUsage(this.#call.promptTokens(candidate), rewriter.outputTokens)
    );
  }

  figures(usage = this.usage()): MeteredFigures {
    const latencyMs = this.#steadyClock.nowMs() - this.#startedMs;
    return this.#charge.figures(this.#relay.candidate, usage, latencyMs);
  }

  checkpoint(): Promise<void> {
    return this.#charge.checkpoint(this.figures());
  }

  /** Ends the hold behind a checkpoint of what never left: nothing is charged. A failure is reported. */
  waiveQuietly(): Promise<void> {
    const waived = this.#charge.waive(this.figures(estimatedUsage(0, 0)));
    this.noteUndelivered();
    return this.#reported(waived.then(() => this.#notes.remove(this.#call.requestId)));
  }

  /** What the database may charge of it is owed back, unless it is delivered when it is asked for again. */
  noteUndelivered(): void {
    if (this.#call.store === undefined) this.#notes.add(this.#call.hold);
  }

  settle(
    status: 200 | 499,
    figures: MeteredFigures = this.figures(),
    also?: StatementEffect,
  ): Promise<void> {
    this.#charge.note(figures);
    return this.#charge.settle(figures, status, this.#call.log.errorCode, also);
  }

  /** The same, where no caller waits for the outcome: a failure is reported. */
  settleQuietly(status: 200 | 499): Promise<void> {
    return this.#reported(this.settle(status));
  }

  /** Waits a moment for the usage that a provider may report behind its error. */
  async awaitUsage(): Promise<void> {
    const relay = this.#relay;
    if (!relay.rewriter.mayReportUsage) return;
    await doneInTime(relay.readUsageBehindError(), this.#steadyClock, ERROR_USAGE_WAIT_MS);
  }

  /**
   * Charges what a stream that failed has delivered. True when that is durable; false when it is not within
   * the total timeout, though not at once: then the charge follows, however long it takes.
   */
  settleInTime(totalTimeoutMs: number): Promise<boolean> {
    const leftMs = this.#startedMs + totalTimeoutMs - this.#steadyClock.nowMs();
    const patienceMs = Math.max(leftMs, MIN_CHARGE_WAIT_MS);
    return doneInTime(this.settleQuietly(200), this.#steadyClock, patienceMs);
  }

  /**
   * Charges what had come when the client went away, and stops the provider: at once, but where the answer is
   * whole and only its usage is still to come. Clients leave at the finish reason, and what a model thinks
   * unseen shows in the usage alone.
   */
  async settleLeft(stopProvider: () => void): Promise<void> {
    const relay = this.#relay;
    if (relay.lacksUsage) await doneInTime(relay.readUsage(), this.#steadyClock, USAGE_WAIT_MS);
    stopProvider();
    await this.settleQuietly(499);
  }

  #reported(written: Promise<void>): Promise<void> {
    return written.catch((error) => this.#onError(error, this.#call.requestId));
  }
}
