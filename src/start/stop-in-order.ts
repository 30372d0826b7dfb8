import type { Gateway } from "../compose.ts";
import type { GatewayConfig } from "../config.ts";
import { systemClock } from "../lib/clock.ts";
import { doneInTime } from "../lib/done-in-time.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import type { StartedDatabase } from "./database.ts";

export interface Server {
  readonly port: number;
  /** Takes no new connection; resolves when the last one has ended. */
  stop(): Promise<void>;
}

export interface Running {
  readonly gateway: Gateway;
  readonly server: Server;
  readonly database: StartedDatabase;
  readonly telemetry: Telemetry;
  readonly config: GatewayConfig;
}

/**
 * How long one of several instances still takes what comes after it said that it is not ready: whoever
 * chooses among them looks at that once a second or so, and must not meet a closed door meanwhile.
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
  return doneInTime(work, systemClock, withinMs).catch(() => false);
}
