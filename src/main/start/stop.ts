import { systemClock } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";
import type { Environment } from "../../platform/config/environment.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { Gateway } from "../compose.ts";
import type { StartedDatabase } from "./database.ts";

export interface Server {
  readonly port: number;
  /** Accepts no new connection. Resolves when the last one has ended. */
  stop(): Promise<void>;
}

interface Running {
  readonly gateway: Gateway;
  readonly server: Server;
  readonly database: StartedDatabase;
  readonly telemetry: Telemetry;
  readonly config: GatewayConfig;
  /** True if a parent process stops this one, and logs the end of all. */
  readonly isWorker: boolean;
}

/**
 * Milliseconds for which a clustered instance still accepts connections after it has reported that it is not ready. A
 * load balancer checks about once a second, and must not find a closed port in between.
 */
const NOT_READY_MS = 3_000;
/** The maximum share of the grace time for NOT_READY_MS, 0 to 1. */
const MAX_NOT_READY_SHARE = 0.25;
/** Milliseconds to wait for the last bytes of answers to be sent. */
const LAST_BYTES_MS = 1_000;
/** Milliseconds for closing. Without a database closing cannot finish; the next start settles the rest. */
const CLOSE_TIMEOUT_MS = 5_000;
/** Milliseconds that a stop may take beyond its grace time, in total. */
export const STOP_TIMEOUT_MS = 15_000;

/**
 * Stops without losing a request. In this order the gateway
 *
 * 1. reports that it is not ready and, if other instances can take over, serves new requests for a moment;
 * 2. accepts no new connection and waits for running requests;
 * 3. aborts the requests that exceed the grace time;
 * 4. settles everything, releases its leases and leaves.
 *
 * Returns the exit code: 0, or 1 if the database prevented closing.
 */
export async function stopInOrder(running: Running): Promise<number> {
  const { gateway, server, database, telemetry, config } = running;
  const graceMs = config.shutdownGraceMs;
  const noticeMs =
    config.redisUrl === undefined ? 0 : Math.min(NOT_READY_MS, graceMs * MAX_NOT_READY_SHARE);
  gateway.announceStop();
  database.announceStop();
  telemetry.log.info(`draining: ${gateway.requestsRunning()} requests running`);
  await Bun.sleep(noticeMs);
  const lastConnection = server.stop();
  await gateway.drain(graceMs - noticeMs);
  await isDone(lastConnection, LAST_BYTES_MS);
  const isClosed = await isDone(gateway.close(), CLOSE_TIMEOUT_MS);
  if (!isClosed) telemetry.log.error("the database does not answer; exiting without it");
  await database.stop();
  telemetry.log.info(running.isWorker ? `worker ${process.pid} stopped` : "stopped");
  await telemetry.close();
  return isClosed ? 0 : 1;
}

/** Returns false if the work failed or took too long. */
function isDone(work: Promise<void>, withinMs: number): Promise<boolean> {
  return finishesWithin(work, systemClock, withinMs).catch(() => false);
}

/**
 * Milliseconds after the first signal in which another one is ignored. `bun run` forwards signals, so a signal to the
 * whole group, such as Ctrl-C, arrives twice.
 */
const ECHO_MS = 500;

/**
 * Handles SIGTERM and SIGINT from the first moment of the process. During the start, a signal is recorded, and the
 * start ends at the next point that can undo everything it began. When the gateway serves, a signal stops it. A second
 * signal ends the process immediately.
 */
export class StopSignals {
  readonly #onSignal: (signal: string) => void;
  readonly #echoMs: number;
  #received: string | undefined;
  #receivedAtMs = 0;
  #stop: (() => void) | undefined;

  /** @param onSignal receives the first signal */
  constructor(onSignal: (signal: string) => void, environment: Environment) {
    this.#onSignal = onSignal;
    this.#echoMs = environment.npm_lifecycle_event === undefined ? 0 : ECHO_MS;
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.on(signal, () => this.receive(signal));
    }
  }

  /** Throws if the process received a stop signal during the start. */
  assertNone(): void {
    if (this.#received === undefined) return;
    throw new Error(`stopped by ${this.#received} during the start`);
  }

  /** Lets signals call `stop` from now on. */
  onStop(stop: () => void): void {
    this.#stop = stop;
    if (this.#received !== undefined) stop();
  }

  /** Handles a signal, or another reason to stop. The second one ends the process. */
  receive(signal: string): void {
    const nowMs = performance.now();
    if (this.#received !== undefined) {
      if (nowMs - this.#receivedAtMs < this.#echoMs) return;
      process.exit(1);
    }
    this.#received = signal;
    this.#receivedAtMs = nowMs;
    this.#onSignal(signal);
    this.#stop?.();
  }
}
