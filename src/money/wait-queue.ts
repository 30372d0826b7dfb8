import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import type { Hold, HoldRequest } from "./interface.ts";

/** A request short only because of other running holds waits this long at most. */
export const MAX_WAIT_MS = 2_000;
/** Waiting requests of one organization; beyond that a request is refused at once. */
export const MAX_WAITING_REQUESTS = 4_096;
/** How long the last look waits for what is known of the money, where that is just changing. */
const MAX_SETTLING_MS = 500;

/** What one look at a waiting request decides. */
export type WaitVerdict =
  | { readonly kind: "held"; readonly hold: Hold }
  | { readonly kind: "refused"; readonly error: unknown }
  /** Short for the time being: of its organization's balance, or of a budget of its key. */
  | { readonly kind: "short"; readonly of: "organization" | "key"; readonly error: unknown };

export interface WaitingMoney {
  /** Undefined where what is known of the request's money is durable and up to date; else a promise of it. */
  whenSettled(request: HoldRequest): Promise<void> | undefined;
  /** Only where it is settled. */
  look(request: HoldRequest): WaitVerdict;
}

interface Entry {
  readonly request: HoldRequest;
  shortOf: "organization" | "key";
  isLastLook: boolean;
  resolve(hold: Hold): void;
  reject(error: unknown): void;
  cancelTimer(): void;
}

/**
 * Requests of one organization that wait for holds to end, first come first served: a request that needs what an
 * earlier one waits for stands behind it. When its time is up a request is looked at once more, alone,
 * because nothing is refused while the money is there.
 */
export class WaitQueue {
  readonly #clock: Clock;
  readonly #money: WaitingMoney;
  #entries: Entry[] = [];
  #isResuming = false;

  constructor(clock: Clock, money: WaitingMoney) {
    this.#clock = clock;
    this.#money = money;
  }

  get length(): number {
    return this.#entries.length;
  }

  /** True where an earlier request waits for what a request of this key needs. */
  standsBefore(keyId: string): boolean {
    return this.#entries.some(
      (entry) => entry.shortOf === "organization" || entry.request.keyId === keyId,
    );
  }

  wait(request: HoldRequest, shortOf: "organization" | "key"): Promise<Hold> {
    return new Promise((resolve, reject) => {
      const entry: Entry = {
        request,
        shortOf,
        isLastLook: false,
        resolve,
        reject,
        cancelTimer: this.#clock.after(MAX_WAIT_MS, () => this.#lookLast(entry)),
      };
      this.#entries.push(entry);
    });
  }

  /** Looks at everyone in order, after holds have ended. */
  drain(): void {
    if (this.#entries.length === 0) return;
    const blockedKeys = new Set<string>();
    let isBlocked = false;
    this.#entries = this.#entries.filter((entry) => {
      if (isBlocked || blockedKeys.has(entry.request.keyId)) return true;
      const settled = this.#money.whenSettled(entry.request);
      if (settled !== undefined) {
        isBlocked = true;
        this.#resumeWhen(settled);
        return true;
      }
      const verdict = this.#money.look(entry.request);
      if (verdict.kind === "short") {
        entry.shortOf = verdict.of;
        if (verdict.of === "organization") isBlocked = true;
        else blockedKeys.add(entry.request.keyId);
        return true;
      }
      end(entry, verdict);
      return false;
    });
  }

  #resumeWhen(settled: Promise<void>): void {
    // Its failure is for the wait that is under way to report.
    if (this.#isResuming) return void settled.catch(() => {});
    this.#isResuming = true;
    settled.then(
      () => {
        this.#isResuming = false;
        this.drain();
      },
      () => {
        // There is nothing to look at; the last look tells why.
        this.#isResuming = false;
      },
    );
  }

  #lookLast(entry: Entry, isFinal = false): void {
    if (!this.#entries.includes(entry)) return;
    const settled = this.#money.whenSettled(entry.request);
    if (settled === undefined) {
      this.#leave(entry, this.#money.look(entry.request));
      return;
    }
    if (isFinal) {
      settled.catch(() => {});
      this.#leave(entry, { kind: "refused", error: unsettled() });
      return;
    }
    if (!entry.isLastLook) {
      entry.isLastLook = true;
      entry.cancelTimer = this.#clock.after(MAX_SETTLING_MS, () => this.#lookLast(entry, true));
    }
    settled.then(
      () => this.#lookLast(entry),
      (error) => this.#leave(entry, { kind: "refused", error }),
    );
  }

  #leave(entry: Entry, verdict: WaitVerdict): void {
    if (!this.#entries.includes(entry)) return;
    this.#entries = this.#entries.filter((other) => other !== entry);
    end(entry, verdict);
    this.drain();
  }
}

function end(entry: Entry, verdict: WaitVerdict): void {
  entry.cancelTimer();
  if (verdict.kind === "held") entry.resolve(verdict.hold);
  else entry.reject(verdict.error);
}

function unsettled(): GatewayError {
  return new GatewayError("database_unavailable", "The gateway's database does not answer.", {
    retryAfterSeconds: 1,
  });
}
