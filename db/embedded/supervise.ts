import { processRuns } from "./process-table.ts";
import type { RunningServer } from "./server.ts";
import { waitUntil } from "./wait.ts";

/*
 * A server is either running, or gone and being restarted, or given up; only the end of its process
 * moves it on. Clients see an outage of a second or so, as with any restart of a database.
 */

const CHECK_INTERVAL_MS = 1_000;
/** Restarts without a good hour in between. */
const RESTART_LIMIT = 5;
const RESTARTS_FORGIVEN_AFTER_MS = 3_600_000;
const END_PATIENCE_MS = 5_000;

export interface Supervision {
  /** Ends the watch; waits a moment for a restart that is under way. */
  end(): Promise<void>;
}

/** Restarts the server when its process is gone, killed for want of memory for instance. */
export function superviseServer(
  first: RunningServer,
  restart: () => Promise<RunningServer>,
  log: (message: string) => void,
): Supervision {
  let server: RunningServer | undefined = first;
  let restarting: Promise<void> | undefined;
  let restarts = 0;
  let lastRestartMs = 0;

  const revive = async (): Promise<void> => {
    server = undefined;
    if (performance.now() - lastRestartMs > RESTARTS_FORGIVEN_AFTER_MS) restarts = 0;
    restarts += 1;
    lastRestartMs = performance.now();
    log("the embedded Postgres has ended unexpectedly: restarting it");
    try {
      server = await restart();
    } catch (error) {
      log((error as Error).message);
    }
  };
  const timer = setInterval(() => {
    if (restarting !== undefined || (server !== undefined && processRuns(server.pid))) return;
    if (restarts >= RESTART_LIMIT) {
      clearInterval(timer);
      log(`the embedded Postgres was restarted ${RESTART_LIMIT} times: giving up`);
      return;
    }
    restarting = revive().finally(() => {
      restarting = undefined;
    });
  }, CHECK_INTERVAL_MS);
  timer.unref();

  return {
    async end() {
      clearInterval(timer);
      await waitUntil(() => restarting === undefined, END_PATIENCE_MS);
    },
  };
}
