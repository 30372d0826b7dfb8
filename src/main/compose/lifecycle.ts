import type { InFlight } from "../../platform/cluster/in-flight.ts";

/** A part of the gateway that works by itself, or that has work to finish. */
export interface Part {
  /** Begins the part's own work. Called once, when all parts are constructed. */
  start?(): unknown;
  /** Drops idle actors from memory. Called every few seconds. */
  passivateIdle?(): void;
  /** Aborts running requests, or work that they wait for, because their grace time has ended. */
  abort?(): void;
  /** Ends the part's work. Called once. */
  stop?(): unknown;
}

/**
 * The parts by name, in the order in which they start. They stop in the reverse order, so that a part may use all parts
 * before it until it has stopped. The members of a group stop at the same time, and begin in their order.
 */
export type Parts = Readonly<Record<string, Part | readonly Part[]>>;

/** The steps in which a gateway stops, in this order. */
export interface Shutdown {
  /** Reports that the gateway is no longer ready, and closes each connection after its answer. New requests are still served. */
  announceStop(): void;
  /** Returns the number of running requests. */
  requestsRunning(): number;
  /** Waits for running requests for `graceMs`. Then aborts the others: their clients get an error, and they are charged. */
  drain(graceMs: number): Promise<void>;
  /** Rejects if the database could not be reached. The next start settles the rest. */
  close(): Promise<void>;
}

/** Milliseconds for aborted requests to be charged and answered. */
const ABORTED_DRAIN_MS = 2_000;
const PASSIVATION_SWEEP_MS = 10_000;

/** Returns the functions that start and stop the parts. */
export function composeLifecycle(
  parts: Parts,
  {
    inFlight,
    following,
  }: {
    readonly inFlight: InFlight;
    /** The streams of clients that follow background responses. */
    readonly following: { drain(): void; stop(): void };
  },
): Shutdown & { start(): Promise<void> } {
  const groups = Object.values(parts).map((part): readonly Part[] => [part].flat());
  const all = groups.flat();
  let sweep: ReturnType<typeof setInterval> | undefined;
  return {
    async start() {
      for (const part of all) await part.start?.();
      sweep = setInterval(() => {
        for (const part of all) part.passivateIdle?.();
      }, PASSIVATION_SWEEP_MS);
    },
    announceStop: () => inFlight.announceStop(),
    requestsRunning: () => inFlight.count,
    async drain(graceMs) {
      following.drain();
      if (await inFlight.drained(graceMs)) return;
      for (const part of all) part.abort?.();
      await inFlight.drained(ABORTED_DRAIN_MS);
      following.stop();
    },
    async close() {
      clearInterval(sweep);
      const failures: unknown[] = [];
      for (const group of groups.toReversed()) {
        // A part that fails to stop must not keep the leases and the connections of the others.
        const stopped = await Promise.allSettled(group.map(async (part) => part.stop?.()));
        for (const part of stopped) if (part.status === "rejected") failures.push(part.reason);
      }
      if (failures.length > 0) throw failures[0];
    },
  };
}
