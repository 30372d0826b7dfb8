import { boundedDatabase } from "../../db/bounded-database.ts";
import { connectDatabase, type Database, type DatabaseTarget } from "../../db/client.ts";
import { INSTANCE_SETTINGS } from "../../db/instance-settings.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import { LEDGER_SETTINGS } from "../../db/ledger/connection-settings.ts";
import type { Clock } from "../lib/clock.ts";

export interface Connections {
  /** What requests read and write: with a client behind, so not for long. */
  readonly sql: Database;
  /** The same pool, for what may take its time. */
  readonly background: Database;
  readonly ledger: Database;
  /** As the database shows the sessions of the ledger. */
  readonly ledgerName: string;
  /** What owners of webhooks write. */
  readonly deliveries: Database;
  /** Heartbeats, and the lock of the gateway. */
  readonly lock: Database;
  close(): Promise<unknown>;
}

/** Commits and heartbeats have connections of their own; everything else shares a pool. */
export function openConnections(
  target: DatabaseTarget,
  options: {
    readonly instance: InstanceIdentity;
    readonly poolSize: number;
    readonly clock: Clock;
    readonly ledgerSettings: Record<string, string>;
  },
): Connections {
  const open = (size: number, use: string, settings?: Record<string, string>): Database =>
    connectDatabase(target, {
      poolSize: size,
      applicationName: `gateway-${use}`,
      settings: { ...INSTANCE_SETTINGS, ...settings },
    });
  const background = open(options.poolSize, "pool");
  // Sessions that are found and ended by their names bear the name of the instance.
  const own = (use: string): string => `${use}-${options.instance.id}`;
  const ledger = open(1, own("ledger"), options.ledgerSettings);
  const deliveries = open(1, "deliveries", LEDGER_SETTINGS);
  const lock = open(1, own("lock"));
  return {
    sql: boundedDatabase(background, options.clock),
    background,
    ledger,
    ledgerName: `gateway-${own("ledger")}`,
    deliveries,
    lock,
    close: () =>
      Promise.all(
        [background, ledger, deliveries, lock].map((connection) => connection.end({ timeout: 5 })),
      ),
  };
}
