import {
  type DatabaseTarget,
  LEDGER_SETTINGS,
  type Query,
  SHARED_LEDGER_SETTINGS,
} from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { untilReachable } from "../../db/unavailable.ts";
import type { GatewayConfig } from "../config.ts";
import { type Clock, systemClock } from "../lib/clock.ts";
import { newId } from "../lib/ids.ts";
import type { Keyring } from "../lib/keyring.ts";
import type { Wire } from "../providers/registry.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import { openConnections } from "./connections.ts";

export interface ComposeOptions {
  readonly config: GatewayConfig;
  /** A migrated database that holds at least one organization. */
  readonly database: DatabaseTarget;
  readonly keyring: Keyring;
  readonly telemetry: Telemetry;
  /** Called when this process was declared dead and must stop at once. */
  onFenced(): void;
  readonly clock?: Clock;
  /** By provider type, wire formats that stand in the place of the built-in one. */
  readonly wires?: Readonly<Record<string, Wire>> | undefined;
}

/** What every part of the gateway is made with: who this instance is, its clock and its connections. */
export function composeBase(options: ComposeOptions) {
  const { config, telemetry, clock = systemClock } = options;
  const instance: InstanceIdentity = { id: newId("ins"), epoch: BigInt(Date.now()) };
  const isClustered = config.redisUrl !== undefined;
  const connections = openConnections(options.database, {
    instance,
    poolSize: config.databasePoolSize,
    clock,
    ledgerSettings: isClustered ? SHARED_LEDGER_SETTINGS : LEDGER_SETTINGS,
    onRenewed: (connections) =>
      telemetry.log.warn({ connections }, "replaced silent connections to the database"),
  });
  const { sql, background } = connections;
  return {
    ...options,
    clock,
    instance,
    isClustered,
    connections,
    sql,
    background,
    onError: (error: unknown): void => telemetry.log.error({ err: error }, "background failure"),
    read: <Result>(query: Query<Result>): Promise<Result> =>
      untilReachable(clock, () => query.run(sql)),
  };
}

export type Base = ReturnType<typeof composeBase>;
