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
import { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { ProviderFactory } from "../../providers/registry.ts";

export interface ComposeOptions {
  readonly config: GatewayConfig;
  /** A migrated database that holds at least one organization. */
  readonly database: DatabaseTarget;
  readonly keyring: Keyring;
  readonly telemetry: Telemetry;
  /** Called if this process was declared dead and must stop immediately. */
  onFenced(): void;
  readonly clock?: Clock;
  /** Factories that replace the built-in one, by provider type. */
  readonly providerFactories?: Readonly<Record<string, ProviderFactory>> | undefined;
  /** Connections that the start has begun to open. Opened here if absent. */
  readonly connectedInstance?: ConnectedInstance | undefined;
}

/** The identity of this process among the gateways of a database, and its connections. */
export interface ConnectedInstance {
  readonly identity: InstanceIdentity;
  readonly connections: Connections;
}

/** Begins to open all connections without waiting for them. */
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

/**
 * Composes the parts that all others use: the identity of this instance, its clock, its connections and the change
 * feed.
 */
export function composeBase(options: ComposeOptions) {
  const { config, keyring, telemetry, clock = systemClock } = options;
  const { identity, connections } = options.connectedInstance ?? connectInstance(options);
  const { sql, background } = connections;
  const changes = new ChangeFeed({
    sql: connections.lock,
    onUnknownKind: (kind) => telemetry.log.warn({ kind }, "ignored changes of an unknown kind"),
  });
  changes.on("master-key", (keyId) => keyring.noteSealing(keyId));
  const beforeFenced: (() => void)[] = [];
  return {
    ...options,
    clock,
    instance: identity,
    isClustered: config.redisUrl !== undefined,
    connections,
    sql,
    background,
    /** Parts subscribe to it when they are composed. */
    changes,
    /** Registers work that is done before the process ends because it was declared dead. */
    beforeFenced: (work: () => void): void => void beforeFenced.push(work),
    onFenced(): void {
      for (const work of beforeFenced) work();
      options.onFenced();
    },
    onError: (error: unknown): void => telemetry.log.error({ err: error }, "background failure"),
    read: <Result>(query: Query<Result>): Promise<Result> =>
      untilReachable(clock, () => query.run(sql)),
  };
}

export type Base = ReturnType<typeof composeBase>;

export interface Connections {
  /** Connections for the statements of requests. A client waits for each statement, so it must be short. */
  readonly sql: Database;
  /** The same pool as `sql`, for statements that may take long. */
  readonly background: Database;
  readonly ledger: Database;
  /** Name of the ledger's sessions in the database. */
  readonly ledgerName: string;
  /** Connections for writes of the owners of webhooks. */
  readonly deliveries: Database;
  /** Connections for all other work on webhooks: finding, sequencing, reading and removing. */
  readonly webhooks: Database;
  /** The connection for heartbeats and the lock of the gateway. */
  readonly lock: Database;
  /** Replaces the connection of the heartbeats if it has not answered for `minAgeMs`. */
  renewLock(minAgeMs: number): void;
  /** True if the connection that writes charges is open and works. */
  readonly isLedgerOpen: boolean;
  /**
   * Resolves when a connection of each kind is open. If that takes too long, rejects with the failure of the last
   * attempt.
   */
  whenOpen(): Promise<void>;
  close(): Promise<unknown>;
}

/** Seconds for statements to end. The users of the connections have stopped, so later statements would never end. */
const CLOSE_TIMEOUT_SECONDS = 2;

/** Equal to the time that a start waits for its database. */
const OPEN_TIMEOUT_MS = 60_000;

const WEBHOOK_CONNECTIONS = 3;
/**
 * Settings of sessions for webhooks. Their statements are bounded in rows, so a statement that reaches this timeout is
 * faulty, and must not keep its locks and its connection. Statements on few rows of large tables use indexes.
 */
export const WEBHOOK_SETTINGS: Record<string, string> = {
  statement_timeout: "5000",
  enable_seqscan: "off",
  jit: "off",
};

/** Opens the connections. Commits, heartbeats and webhooks have separate ones; everything else shares a pool. */
export function openConnections(
  target: DatabaseTarget,
  options: {
    readonly instance: InstanceIdentity;
    readonly poolSize: number;
    readonly clock: Clock;
    readonly ledgerSettings: Record<string, string>;
    /** Called after silent connections were replaced. */
    onRenewed(applicationName: string): void;
  },
): Connections {
  const open = (
    poolSize: number,
    use: string,
    settings?: Record<string, string>,
  ): WatchedConnections => {
    // The names contain the instance, because other code finds and ends sessions by name.
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
