import { systemClock } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";
import type { Environment } from "../../platform/config/environment.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { Gateway } from "../compose.ts";
import type { StartedDatabase } from "./database.ts";

export interface Server {
  readonly port: number;
  /** Takes no new connection; resolves when the last one has ended. */
  stop(): Promise<void>;
}

interface Running {
  readonly gateway: Gateway;
  readonly server: Server;
  readonly database: StartedDatabase;
  readonly telemetry: Telemetry;
  readonly config: GatewayConfig;
}

/**
 * How long a clustered instance still accepts requests after it has reported that it is not ready: a load balancer
 * asks for that about once a second, and must not meet a closed port meanwhile.
 */
const NOTICE_MS = 3_000;
/** At most this share of the grace goes into that. */
const NOTICE_SHARE = 0.25;
/** How long the last bytes of answers may take to leave. */
const LAST_BYTES_MS = 1_000;
/** Without a database nothing can be closed properly; the next start settles what is left. */
const CLOSE_TIMEOUT_MS = 5_000;
/** What a stop may take beyond its grace, all in all. */
export const STOP_TIMEOUT_MS = 15_000;

/**
 * Stops without losing a request: says that it is not ready, serves what still comes for a moment where
 * others can take over, takes no new connection, lets what runs end, cuts short what does not within the
 * grace, settles everything, hands back what it owns, and leaves. Returns the exit code: 0, or 1 where the
 * database kept it from closing.
 */
export async function stopInOrder(running: Running): Promise<number> {
  const { gateway, server, database, telemetry, config } = running;
  const graceMs = config.shutdownGraceMs;
  const noticeMs = config.redisUrl === undefined ? 0 : Math.min(NOTICE_MS, graceMs * NOTICE_SHARE);
  gateway.announceStop();
  database.announceStop();
  telemetry.log.info("not ready any more; what runs may end");
  await Bun.sleep(noticeMs);
  const lastConnection = server.stop();
  await gateway.drain(graceMs - noticeMs);
  await isDone(lastConnection, LAST_BYTES_MS);
  const isClosed = await isDone(gateway.close(), CLOSE_TIMEOUT_MS);
  if (!isClosed) telemetry.log.error("the database does not answer; ending without it");
  await database.stop();
  await telemetry.close();
  return isClosed ? 0 : 1;
}

/** False where it failed, too. */
function isDone(work: Promise<void>, withinMs: number): Promise<boolean> {
  return finishesWithin(work, systemClock, withinMs).catch(() => false);
}

/**
 * `bun run` hands on what it receives. A signal to the whole group, such as Ctrl-C, so comes twice under it:
 * what follows the first one so soon is its echo.
 */
const ECHO_MS = 500;

/**
 * SIGTERM and SIGINT, from the first moment of the process on. While it starts, a signal is noted, and
 * the start ends itself at the next point where everything begun can be undone; once it serves, a signal
 * stops it. A second one does not wait for either.
 */
export class StopSignals {
  readonly #onSignal: (signal: string) => void;
  readonly #echoMs: number;
  #received: string | undefined;
  #receivedAtMs = 0;
  #stop: (() => void) | undefined;

  /** `onSignal` receives the first signal. */
  constructor(onSignal: (signal: string) => void, environment: Environment) {
    this.#onSignal = onSignal;
    this.#echoMs = environment.npm_lifecycle_event === undefined ? 0 : ECHO_MS;
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.on(signal, () => this.take(signal));
    }
  }

  /** Throws if the process got a stop signal while it starts. */
  assertNone(): void {
    if (this.#received === undefined) return;
    throw new Error(`stopped by ${this.#received} before it was started`);
  }

  /** From now on a signal calls `stop`. */
  handOver(stop: () => void): void {
    this.#stop = stop;
    if (this.#received !== undefined) stop();
  }

  /** Another reason to stop counts as a signal too. */
  take(signal: string): void {
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
