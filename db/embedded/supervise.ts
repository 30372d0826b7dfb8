import { waitUntil } from "./process-table.ts";
import type { RunningServer } from "./server.ts";

/*
 * A server is:
 *
 *   running    until its process ends, or it is asked to stop
 *   stopping   it takes no connection any more and waits for those that it has, which ours never give up:
 *              after a moment it is ended without waiting
 *   gone       it is started again, sooner or later until that succeeds: a disk that was full has room again
 *
 * running → stopping → gone → running, and running → gone; nothing else. Clients see an outage of a second
 * or so, as with any restart of a database.
 */

const CHECK_INTERVAL_MS = 1_000;
/** A supervisor that stops the gateway together with its server has signalled the gateway by then. */
const STOPPING_PATIENCE_MS = 3_000;
/** One that has run for so long is started again at once; others after pauses that double. */
const SETTLED_LIFE_MS = 2_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 10_000;
const END_PATIENCE_MS = 5_000;

/** The server as its supervision reaches it. */
export interface SupervisedServer {
  isRunning(server: RunningServer): boolean;
  /** Throws where that cannot be seen. */
  isStopping(server: RunningServer): boolean;
  end(server: RunningServer): Promise<void>;
  /** Rejects where it does not come up. */
  restart(): Promise<RunningServer>;
}

/** Keeps a server running. To be asked to look about every second. */
export class ServerSupervision {
  readonly #supervised: SupervisedServer;
  readonly #log: (message: string) => void;
  #server: RunningServer | undefined;
  /** When it was first seen running. */
  #startedMs: number | undefined;
  #stoppingSinceMs: number | undefined;
  #pauseMs = 0;
  #dueMs = 0;
  #work: Promise<void> | undefined;
  #isLeaving = false;

  constructor(
    first: RunningServer,
    supervised: SupervisedServer,
    log: (message: string) => void,
    nowMs: number,
  ) {
    this.#server = first;
    this.#supervised = supervised;
    this.#log = log;
    this.#startedMs = nowMs;
  }

  get isBusy(): boolean {
    return this.#work !== undefined;
  }

  /** The gateway stops too: a server that is asked to stop is left to wait for our connections. */
  announceStop(): void {
    this.#isLeaving = true;
  }

  look(nowMs: number): void {
    if (this.#work !== undefined) return;
    if (this.#server !== undefined && this.#supervised.isRunning(this.#server)) {
      this.#startedMs ??= nowMs;
      this.#lookAtStop(this.#server, nowMs);
      return;
    }
    if (this.#server !== undefined) this.#noteGone(nowMs);
    if (nowMs >= this.#dueMs) this.#begin(this.#revive(nowMs));
  }

  #lookAtStop(server: RunningServer, nowMs: number): void {
    if (this.#isLeaving || !this.#isStopping(server)) {
      this.#stoppingSinceMs = undefined;
      return;
    }
    this.#stoppingSinceMs ??= nowMs;
    if (nowMs - this.#stoppingSinceMs < STOPPING_PATIENCE_MS) return;
    this.#log("the embedded Postgres was asked to stop and waits for its connections: ending it");
    this.#begin(this.#supervised.end(server));
  }

  /** Where it cannot be seen now it can be in a second. */
  #isStopping(server: RunningServer): boolean {
    try {
      return this.#supervised.isStopping(server);
    } catch {
      return false;
    }
  }

  #noteGone(nowMs: number): void {
    this.#server = undefined;
    this.#stoppingSinceMs = undefined;
    const isSettled = nowMs - (this.#startedMs ?? nowMs) >= SETTLED_LIFE_MS;
    this.#pauseMs = isSettled ? 0 : longerPause(this.#pauseMs);
    this.#dueMs = nowMs + this.#pauseMs;
    this.#log("the embedded Postgres has ended unexpectedly: restarting it");
  }

  async #revive(nowMs: number): Promise<void> {
    try {
      this.#server = await this.#supervised.restart();
      this.#startedMs = undefined;
    } catch (error) {
      this.#pauseMs = longerPause(this.#pauseMs);
      this.#dueMs = nowMs + this.#pauseMs;
      this.#log(`${(error as Error).message}; trying again in ${this.#pauseMs / 1_000} s`);
    }
  }

  #begin(work: Promise<void>): void {
    this.#work = work
      .catch((error: unknown) => this.#log((error as Error).message))
      .finally(() => {
        this.#work = undefined;
      });
  }
}

function longerPause(pauseMs: number): number {
  return pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
}

export interface Supervision {
  announceStop(): void;
  /** Ends the watch; waits a moment for a restart that is under way. */
  end(): Promise<void>;
}

/** Looks after the server from now on. */
export function superviseServer(
  first: RunningServer,
  supervised: SupervisedServer,
  log: (message: string) => void,
): Supervision {
  const supervision = new ServerSupervision(first, supervised, log, performance.now());
  const timer = setInterval(() => supervision.look(performance.now()), CHECK_INTERVAL_MS);
  timer.unref();
  return {
    announceStop: () => supervision.announceStop(),
    async end() {
      clearInterval(timer);
      await waitUntil(() => !supervision.isBusy, END_PATIENCE_MS);
    },
  };
}
