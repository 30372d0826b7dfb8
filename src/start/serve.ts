import { composeGateway, type Gateway } from "../compose.ts";
import type { GatewayConfig } from "../config.ts";
import type { Keyring } from "../lib/keyring.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import type { StartedDatabase } from "./database.ts";
import { listen } from "./listen.ts";
import { stopInOrder } from "./stop-in-order.ts";
import type { StopSignals } from "./stop-signals.ts";
import { surviveStrayFailures } from "./stray-failures.ts";

export interface ServeOptions {
  readonly config: GatewayConfig;
  readonly database: StartedDatabase;
  readonly keyring: Keyring;
  readonly telemetry: Telemetry;
  readonly signals: StopSignals;
  /** True where other processes of this machine listen on the same port. */
  readonly sharesPort: boolean;
  /** A stop in order failed. */
  onStopFailed(error: unknown): void;
}

/** Composes the gateway and listens; from then on a signal stops it in order. Returns the port. */
export async function serve(options: ServeOptions): Promise<number> {
  const { config, database, telemetry, signals } = options;
  surviveStrayFailures(telemetry.log);
  let gateway: Gateway | undefined;
  try {
    gateway = await composeGateway({
      config,
      database: database.target,
      keyring: options.keyring,
      telemetry,
      onFenced: () => {
        telemetry.log.fatal("this instance was declared dead by another one; stopping");
        process.exit(1);
      },
    });
    signals.assertNone();
    const server = listen(gateway, config, options.sharesPort);
    const running = { gateway, server, database, telemetry, config };
    signals.handOver(() => void stopInOrder(running).then(process.exit, options.onStopFailed));
    return server.port;
  } catch (error) {
    // What stopped the start is told, not what it left behind.
    await gateway?.close().catch(() => {});
    throw error;
  }
}
