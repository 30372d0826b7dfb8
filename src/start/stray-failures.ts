import type { Telemetry } from "../telemetry/interface.ts";

/** How a connection that broke is told of. */
const BROKEN_CONNECTION = new Set(["ECONNRESET", "ECONNABORTED", "EPIPE", "ETIMEDOUT"]);

/**
 * A socket may tell that it broke after its user has let go of it. What was under way on it has been told
 * already, so it is noted and no more; any other failure that nobody caught ends the process, because
 * nobody knows in what state it left it.
 */
export function surviveStrayFailures(log: Pick<Telemetry["log"], "warn" | "fatal">): void {
  const judge = (error: unknown): void => {
    if (BROKEN_CONNECTION.has(String((error as { code?: unknown } | null)?.code))) {
      log.warn({ err: error }, "a connection broke behind its end");
      return;
    }
    log.fatal({ err: error }, "a failure that nobody caught; stopping");
    process.exit(1);
  };
  process.on("uncaughtException", judge);
  process.on("unhandledRejection", judge);
}
