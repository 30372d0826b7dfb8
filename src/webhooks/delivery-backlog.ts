import type { Database } from "../../db/client.ts";
import { type DeliveryBacklog, deliveryBacklog } from "../../db/queries/outbox.ts";
import type { Clock } from "../lib/clock.ts";
import type { Telemetry } from "../telemetry/interface.ts";

const LOOK_INTERVAL_MS = 5_000;

/** Looks now and then how far deliveries are behind, for /metrics. */
export class BacklogWatch {
  readonly #sql: Database;
  readonly #clock: Clock;
  #backlog: DeliveryBacklog = { oldestUnnumberedSeconds: 0, oldestUndeliveredSeconds: 0 };
  #lookedAtMs = 0;
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(sql: Database, clock: Clock, telemetry: Pick<Telemetry, "gauge">) {
    this.#sql = sql;
    this.#clock = clock;
    telemetry.gauge(
      "gateway_webhook_oldest_unnumbered_seconds",
      "Age of the oldest event that is not dealt out to webhooks yet; 0 where all are.",
      () => this.#ageNow(this.#backlog.oldestUnnumberedSeconds),
    );
    telemetry.gauge(
      "gateway_webhook_oldest_undelivered_seconds",
      "Age of the oldest event that an enabled webhook has not received; 0 where there is none.",
      () => this.#ageNow(this.#backlog.oldestUndeliveredSeconds),
    );
  }

  start(): void {
    this.#cancel = this.#clock.after(LOOK_INTERVAL_MS, async () => {
      try {
        this.#backlog = await deliveryBacklog(this.#sql);
        this.#lookedAtMs = this.#clock.nowMs();
      } catch {
        // An outage shows by itself: what was oldest grows older.
      }
      if (!this.#isStopped) this.start();
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  #ageNow(seconds: number): number {
    if (seconds === 0) return 0;
    return seconds + Math.max(0, this.#clock.nowMs() - this.#lookedAtMs) / 1_000;
  }
}
