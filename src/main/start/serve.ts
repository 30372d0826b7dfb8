import type { Keyring } from "../../lib/keyring.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { ConnectedInstance } from "../compose/base.ts";
import { composeGateway, type Gateway } from "../compose.ts";
import type { StartedDatabase } from "./database.ts";
import { orRefused } from "./port.ts";
import { type Server, type StopSignals, stopInOrder } from "./stop.ts";

interface ServeOptions {
  readonly config: GatewayConfig;
  readonly database: StartedDatabase;
  readonly instance: ConnectedInstance;
  readonly keyring: Keyring;
  readonly telemetry: Telemetry;
  readonly signals: StopSignals;
  /** True if other processes of this machine listen on the same port. */
  readonly sharesPort: boolean;
  /** Called if an orderly stop failed. */
  onStopFailed(error: unknown): void;
}

/** Milliseconds before the dashboard is built, so that it slows neither the start nor the first requests. */
const PAGES_AFTER_MS = 1_000;

/** Composes the gateway and listens. From then on a signal stops it in order. Returns the port. */
export async function serve(options: ServeOptions): Promise<number> {
  const { config, database, telemetry, signals } = options;
  surviveStrayFailures(telemetry.log);
  let gateway: Gateway | undefined;
  try {
    gateway = await composeGateway({
      config,
      database: database.target,
      connectedInstance: options.instance,
      keyring: options.keyring,
      telemetry,
      onFenced: () => {
        telemetry.log.fatal("this instance was declared dead by another one; stopping");
        process.exit(1);
      },
    });
    signals.assertNone();
    const server = listen(gateway, config, options.sharesPort);
    const isWorker = options.sharesPort;
    const running = { gateway, server, database, telemetry, config, isWorker };
    // If the build fails here, the first request for the dashboard starts it again and gets the failure.
    setTimeout(() => void running.gateway.buildPages().catch(() => {}), PAGES_AFTER_MS).unref();
    signals.onStop(() => void stopInOrder(running).then(process.exit, options.onStopFailed));
    return server.port;
  } catch (error) {
    // The failure of the start is reported, not a failure of the clean-up.
    await gateway?.close().catch(() => {});
    throw error;
  }
}

/** Throws ConfigError if the address cannot be used. */
function listen({ app }: Gateway, config: GatewayConfig, reusePort: boolean): Server {
  const { port, host: hostname } = config;
  orRefused(config, () => app.listen({ port, hostname, reusePort }));
  const server = app.server!;
  return { port: server.port!, stop: () => server.stop(false) };
}

/** Codes of a broken connection. */
const BROKEN_CONNECTION = new Set(["ECONNRESET", "ECONNABORTED", "EPIPE", "ETIMEDOUT"]);

/**
 * Logs uncaught errors of sockets, and ends the process on any other uncaught failure, which leaves an unknown state.
 * Sockets can emit `error` after their owner has detached; the owner has already reported the failed work.
 */
export function surviveStrayFailures(log: Pick<Telemetry["log"], "warn" | "fatal">): void {
  const judge = (error: unknown): void => {
    if (BROKEN_CONNECTION.has(String((error as { code?: unknown } | null)?.code))) {
      log.warn({ err: error }, "a connection failed after it was closed");
      return;
    }
    log.fatal({ err: error }, "uncaught failure; stopping");
    process.exit(1);
  };
  process.on("uncaughtException", judge);
  process.on("unhandledRejection", judge);
}
