import {
  dayAccountId,
  monthAccountId,
  orgAccountId,
  type RequestAccounts,
} from "../../db/ledger/rows.ts";
import type { Clock } from "../lib/clock.ts";
import { type Period, utcDay, utcMonth } from "../lib/utc-time.ts";

/** The accounts of requests that are admitted now: their day and month stay theirs. */
export class AccountsNow {
  readonly #clock: Clock;
  #day: Period;
  #month: Period;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#day = utcDay(clock.nowMs());
    this.#month = utcMonth(clock.nowMs());
  }

  of(request: { readonly organizationId: string; readonly keyId: string }): RequestAccounts {
    this.#roll(this.#clock.nowMs());
    return {
      orgAccount: orgAccountId(request.organizationId),
      dayAccount: dayAccountId(request.keyId, this.#day.start),
      monthAccount: monthAccountId(request.keyId, this.#month.start),
    };
  }

  #roll(nowMs: number): void {
    if (nowMs >= this.#day.startMs && nowMs < this.#day.endMs) return;
    this.#day = utcDay(nowMs);
    this.#month = utcMonth(nowMs);
  }
}
