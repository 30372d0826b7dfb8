import type { Clock } from "../../lib/clock.ts";
import type { TcpProbe, TcpTarget } from "./tcp-probe.ts";

/** An endpoint that answered within this time is taken to be reachable. */
export const REACHABLE_FOR_MS = 30_000;
/** How long an answer may be awaited before the endpoint is probed. */
export const PROBE_AFTER_MS = 1_000;

interface RunningProbe {
  readonly startedMs: number;
  /** Called when the probe has settled; a joiner that gives up removes itself. */
  readonly joiners: Set<() => void>;
}

/**
 * The connect timeout that `fetch` lacks, for one endpoint. A slow answer and an endpoint that cannot
 * be reached look alike from outside, so a call that waits opens a TCP connection of its own beside
 * it: only if that does not stand either by the deadline has the call timed out.
 *
 * A busy endpoint pays nothing: while it answers, calls are not watched at all. Probes are shared
 * between the calls that wait; one begins at most every `probeAfterMs` and lives at most the timeout.
 */
export class ConnectGuard {
  readonly #clock: Clock;
  readonly #probe: TcpProbe;
  readonly #target: TcpTarget;
  readonly #timeoutMs: number;
  readonly #probeAfterMs: number;
  #reachableUntilMs = Number.NEGATIVE_INFINITY;
  #newestProbe: RunningProbe | undefined;

  constructor(options: {
    readonly clock: Clock;
    readonly probe: TcpProbe;
    readonly target: TcpTarget;
    readonly timeoutMs: number;
  }) {
    this.#clock = options.clock;
    this.#probe = options.probe;
    this.#target = options.target;
    this.#timeoutMs = options.timeoutMs;
    this.#probeAfterMs = Math.min(PROBE_AFTER_MS, options.timeoutMs / 2);
  }

  /** Whether the endpoint has shown within REACHABLE_FOR_MS that connections to it stand. */
  isReachable(nowMs: number): boolean {
    return nowMs < this.#reachableUntilMs;
  }

  sawAnswer(nowMs: number): void {
    this.#reachableUntilMs = nowMs + REACHABLE_FOR_MS;
  }

  /** Calls `onTimeout` once if the endpoint proves unreachable before the returned function is called. */
  watch(onTimeout: () => void): () => void {
    const startedMs = this.#clock.nowMs();
    let stop = this.#clock.after(this.#probeAfterMs, () => {
      if (this.isReachable(this.#clock.nowMs())) return;
      stop = this.#awaitProbe(startedMs, onTimeout);
    });
    return () => stop();
  }

  #awaitProbe(callStartedMs: number, onTimeout: () => void): () => void {
    // A probe from before the call may be retransmitting at long intervals: it would tell of the past.
    const newest = this.#newestProbe;
    const probe =
      newest !== undefined && newest.startedMs >= callStartedMs ? newest : this.#startProbe();
    const leave = () => {
      probe.joiners.delete(leave);
      stopDeadline();
    };
    const stopDeadline = this.#clock.after(this.#timeoutMs - this.#probeAfterMs, () => {
      probe.joiners.delete(leave);
      onTimeout();
    });
    probe.joiners.add(leave);
    return leave;
  }

  #startProbe(): RunningProbe {
    const probe: RunningProbe = { startedMs: this.#clock.nowMs(), joiners: new Set() };
    this.#newestProbe = probe;
    const end = () => {
      if (this.#newestProbe === probe) this.#newestProbe = undefined;
    };
    const stopLifetime = this.#clock.after(this.#timeoutMs, () => {
      giveUp();
      end();
    });
    const giveUp = this.#probe(this.#target, (reachable) => {
      stopLifetime();
      end();
      // A refusal is no timeout: the call itself meets it and says so better.
      if (reachable) this.sawAnswer(this.#clock.nowMs());
      for (const leave of [...probe.joiners]) leave();
    });
    return probe;
  }
}
