import { boundedDatabase } from "../../../db/bounded-database.ts";
import {
  connectDatabase,
  type Database,
  type DatabaseTarget,
  HEARTBEAT_SETTINGS,
  INSTANCE_SETTINGS,
  LEDGER_SETTINGS,
  type Query,
  SHARED_LEDGER_SETTINGS,
} from "../../../db/client.ts";
import {
  ConnectionWatch,
  renewableDatabase,
  type WatchedConnections,
} from "../../../db/connection-watch.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { untilReachable } from "../../../db/unavailable.ts";
import { type Clock, systemClock } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import type { Keyring } from "../../lib/keyring.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { ProviderFactory } from "../../providers/registry.ts";

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
  readonly providerFactories?: Readonly<Record<string, ProviderFactory>> | undefined;
  /** Connections that the start has begun to open; they are opened here otherwise. */
  readonly connectedInstance?: ConnectedInstance | undefined;
}

/** Who this process is among the gateways of a database, and its connections to it. */
export interface ConnectedInstance {
  readonly identity: InstanceIdentity;
  readonly connections: Connections;
}

/** Begins to open all connections, and does not wait for them. */
export function connectInstance({
  config,
  database,
  telemetry,
  clock = systemClock,
}: Pick<ComposeOptions, "config" | "database" | "telemetry" | "clock">): ConnectedInstance {
  const identity: InstanceIdentity = { id: newId("ins"), epoch: BigInt(Date.now()) };
  const connections = openConnections(database, {
    instance: identity,
    poolSize: config.databasePoolSize,
    clock,
    ledgerSettings: config.redisUrl === undefined ? LEDGER_SETTINGS : SHARED_LEDGER_SETTINGS,
    onRenewed: (connections) =>
      telemetry.log.warn({ connections }, "replaced silent connections to the database"),
  });
  return { identity, connections };
}

/** What every part of the gateway is made with: who this instance is, its clock and its connections. */
export function composeBase(options: ComposeOptions) {
  const { config, telemetry, clock = systemClock } = options;
  const { identity, connections } = options.connectedInstance ?? connectInstance(options);
  const { sql, background } = connections;
  return {
    ...options,
    clock,
    instance: identity,
    isClustered: config.redisUrl !== undefined,
    connections,
    sql,
    background,
    onError: (error: unknown): void => telemetry.log.error({ err: error }, "background failure"),
    read: <Result>(query: Query<Result>): Promise<Result> =>
      untilReachable(clock, () => query.run(sql)),
  };
}

export type Base = ReturnType<typeof composeBase>;

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
  /** What is looked for, numbered, read and removed for webhooks. */
  readonly webhooks: Database;
  /** Heartbeats, and the lock of the gateway. */
  readonly lock: Database;
  /** Replaces the connection of the heartbeats, which has not answered for `minAgeMs`. */
  renewLock(minAgeMs: number): void;
  /** True if the connection that charges is open and serves. */
  readonly isLedgerOpen: boolean;
  /** Resolves when there is a connection of each kind. Rejects as the last try did if that takes too long. */
  whenOpen(): Promise<void>;
  close(): Promise<unknown>;
}

/** Their users have ended; what does not end by then waits for what never comes. */
const CLOSE_TIMEOUT_SECONDS = 2;

/** As long as a start waits for its database. */
const OPEN_TIMEOUT_MS = 60_000;

const WEBHOOK_CONNECTIONS = 3;
/**
 * Work on webhooks is bounded in rows; where a statement takes this long something is wrong with it, and it
 * must not keep its locks and its connection. Statements on few rows of large tables go by indexes.
 */
export const WEBHOOK_SETTINGS: Record<string, string> = {
  statement_timeout: "5000",
  enable_seqscan: "off",
  jit: "off",
};

/** Commits, heartbeats and webhooks have connections of their own; everything else shares a pool. */
export function openConnections(
  target: DatabaseTarget,
  options: {
    readonly instance: InstanceIdentity;
    readonly poolSize: number;
    readonly clock: Clock;
    readonly ledgerSettings: Record<string, string>;
    /** Connections were silent and were replaced. */
    onRenewed(applicationName: string): void;
  },
): Connections {
  const open = (
    poolSize: number,
    use: string,
    settings?: Record<string, string>,
  ): WatchedConnections => {
    // Sessions that are found and ended by their names bear the name of the instance.
    const applicationName = `gateway-${use}-${options.instance.id}`;
    const database = renewableDatabase((events) =>
      connectDatabase(target, {
        poolSize,
        applicationName,
        settings: { ...INSTANCE_SETTINGS, ...settings },
        events,
      }),
    );
    return { database, applicationName, poolSize };
  };
  const pool = open(options.poolSize, "pool");
  const ledger = open(1, "ledger", options.ledgerSettings);
  const deliveries = open(1, "deliveries", { ...LEDGER_SETTINGS, ...WEBHOOK_SETTINGS });
  const webhooks = open(WEBHOOK_CONNECTIONS, "webhooks", WEBHOOK_SETTINGS);
  const lock = open(1, "lock", HEARTBEAT_SETTINGS);
  const all = [pool, ledger, deliveries, webhooks, lock].map(({ database }) => database);
  const background = pool.database.sql;
  const watch = new ConnectionWatch(
    lock.database.sql,
    [ledger, pool, deliveries, webhooks],
    options.onRenewed,
  );
  return {
    sql: boundedDatabase(background, options.clock),
    background,
    ledger: ledger.database.sql,
    ledgerName: ledger.applicationName,
    deliveries: deliveries.database.sql,
    webhooks: webhooks.database.sql,
    lock: lock.database.sql,
    renewLock(minAgeMs) {
      if (lock.database.renew(minAgeMs)) options.onRenewed(lock.applicationName);
    },
    get isLedgerOpen() {
      return ledger.database.isOpen;
    },
    async whenOpen() {
      await Promise.all(all.map((database) => database.whenOpen(OPEN_TIMEOUT_MS)));
    },
    close() {
      watch.stop();
      return Promise.all(all.map(({ sql }) => sql.end({ timeout: CLOSE_TIMEOUT_SECONDS })));
    },
  };
}
