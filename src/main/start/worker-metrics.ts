import type { Telemetry } from "../../platform/telemetry/interface.ts";
import {
  type GatheredMetrics,
  type MetricReport,
  mergeRetired,
  type ProcessReport,
} from "../../platform/telemetry/metric-registry.ts";

/*
 * The kernel passes a scrape to any worker. That worker requests the metrics of all workers from its parent. The parent
 * collects the reports that arrive within a second and returns them to the worker, which answers the scrape:
 *
 *   worker → parent   gather     for a scrape
 *   parent → workers  report?    one round at a time; scrapes that arrive during a round share it
 *   worker → parent   report
 *   parent → worker   gathered   to each worker that sent `gather`
 */
type FromWorker =
  | { readonly kind: "metrics-gather" }
  | { readonly kind: "metrics-report"; readonly round: number; readonly metrics: MetricReport[] };
type ToWorker =
  | { readonly kind: "metrics-report?"; readonly round: number }
  | { readonly kind: "metrics-gathered"; readonly gathered: GatheredMetrics };

const ROUND_TIMEOUT_MS = 1_000;
/** Milliseconds that a worker waits for its parent. Above the timeout of a round. */
const GATHER_TIMEOUT_MS = ROUND_TIMEOUT_MS + 500;

/** Connects a worker's metrics to its parent: answers requests for a report, and makes a scrape cover all workers. */
export function shareMetrics(telemetry: Telemetry): void {
  let waiting: PromiseWithResolvers<GatheredMetrics> | undefined;
  const send = (message: FromWorker) => process.send?.(message);
  process.on("message", (message: ToWorker) => {
    if (message.kind === "metrics-report?") {
      send({ kind: "metrics-report", round: message.round, metrics: telemetry.report() });
    } else if (message.kind === "metrics-gathered") {
      waiting?.resolve(message.gathered);
    }
  });
  telemetry.gatherMetricsWith(() => {
    if (waiting !== undefined) return waiting.promise;
    const round = Promise.withResolvers<GatheredMetrics>();
    waiting = round;
    const timer = setTimeout(() => round.reject(new Error("no answer")), GATHER_TIMEOUT_MS);
    const end = () => {
      clearTimeout(timer);
      waiting = undefined;
    };
    round.promise.then(end, end);
    send({ kind: "metrics-gather" });
    return round.promise;
  });
}

interface Worker {
  readonly pid: number;
  send(message: ToWorker): void;
}

interface Round {
  readonly number: number;
  readonly workers: ReadonlySet<Worker>;
  readonly missing: Set<Worker>;
  readonly requesters: Set<Worker>;
  /** Number of workers that ended during the round. */
  lost: number;
  readonly timer: ReturnType<typeof setTimeout>;
}

/** Collects the metrics of all workers in their parent. */
export class WorkerMetrics {
  readonly #lastReports = new Map<Worker, readonly MetricReport[]>();
  #retired: ProcessReport | undefined;
  #round: Round | undefined;
  #rounds = 0;

  /** Handles a message of a worker. Returns false if it is not about metrics. */
  take(from: Worker, message: unknown, serving: readonly Worker[]): boolean {
    const { kind } = (message ?? {}) as Partial<FromWorker>;
    if (kind === "metrics-gather") this.#gather(from, serving);
    else if (kind === "metrics-report") this.#note(from, message as FromWorker);
    else return false;
    return true;
  }

  /** Removes a worker that has ended. Its counts stay in the sums. */
  retire(worker: Worker): void {
    const metrics = this.#lastReports.get(worker);
    this.#lastReports.delete(worker);
    if (metrics !== undefined) {
      const last = { worker: String(worker.pid), metrics, isCurrent: false };
      this.#retired = mergeRetired(this.#retired === undefined ? [last] : [this.#retired, last]);
    }
    this.#round?.requesters.delete(worker);
    if (this.#round?.missing.delete(worker)) {
      this.#round.lost++;
      this.#endWhenComplete();
    }
  }

  stop(): void {
    clearTimeout(this.#round?.timer);
    this.#round = undefined;
  }

  #gather(requester: Worker, serving: readonly Worker[]): void {
    if (this.#round !== undefined) {
      this.#round.requesters.add(requester);
      return;
    }
    const workers = new Set([...serving, requester]);
    this.#round = {
      number: ++this.#rounds,
      workers,
      missing: new Set(workers),
      requesters: new Set([requester]),
      lost: 0,
      timer: setTimeout(() => this.#end(), ROUND_TIMEOUT_MS),
    };
    for (const worker of workers) send(worker, { kind: "metrics-report?", round: this.#rounds });
  }

  #note(from: Worker, message: FromWorker): void {
    if (message.kind !== "metrics-report") return;
    this.#lastReports.set(from, message.metrics);
    if (this.#round?.number !== message.round) return;
    this.#round.missing.delete(from);
    this.#endWhenComplete();
  }

  #endWhenComplete(): void {
    if (this.#round?.missing.size === 0) this.#end();
  }

  #end(): void {
    const round = this.#round!;
    clearTimeout(round.timer);
    this.#round = undefined;
    const reports: ProcessReport[] = [...this.#lastReports].map(([worker, metrics]) => ({
      worker: String(worker.pid),
      metrics,
      isCurrent: round.workers.has(worker) && !round.missing.has(worker),
    }));
    if (this.#retired !== undefined) reports.push(this.#retired);
    const answered = round.workers.size - round.missing.size - round.lost;
    const gathered = { reports, requested: round.workers.size, answered };
    for (const requester of round.requesters)
      send(requester, { kind: "metrics-gathered", gathered });
  }
}

/** Sends a message. Ignores the failure if the worker is exiting. */
function send(worker: Worker, message: ToWorker): void {
  try {
    worker.send(message);
  } catch {}
}
