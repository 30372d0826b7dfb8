import postgres from "postgres";
import { type DatabaseTls, takeTls } from "./database-tls.ts";

interface PostgresAddress {
  readonly url: string;
  /** The Unix socket to connect to in place of the URL's host and port. */
  readonly path?: string;
}

const DEFAULT_PORT = "5432";

/**
 * Parses a connection URL and recognises a Unix socket, which the driver does not:
 * `postgres://user@localhost/db?host=/folder` and `postgres://user@%2Ffolder/db`, as in libpq (PostgreSQL
 * documentation, 32.1.1.2 Connection URIs). Pass both parts of the result to the driver: `postgres(address.url, { path:
 * address.path })`.
 */
export function readPostgresUrl(url: string): PostgresAddress {
  if (!URL.canParse(url)) return { url };
  const parsed = new URL(url);
  const folder = parsed.searchParams.get("host") ?? decodeURIComponent(parsed.hostname);
  if (!folder.startsWith("/")) return { url };
  const port = parsed.searchParams.get("port") ?? (parsed.port || DEFAULT_PORT);
  parsed.searchParams.delete("host");
  parsed.searchParams.delete("port");
  const user = parsed.username === "" ? "" : `${parsed.username}@`;
  const login = parsed.password === "" ? user : `${parsed.username}:${parsed.password}@`;
  return {
    url: `postgres://${login}localhost:${port}${parsed.pathname}${parsed.search}`,
    path: `${folder}/.s.PGSQL.${port}`,
  };
}

/** Address of a database: a URL for readPostgresUrl. */
export interface DatabaseTarget {
  readonly url: string;
}

export type Database = postgres.Sql<{ bigint: bigint }>;
/** A part of a statement. */
export type SqlFragment = postgres.PendingQuery<postgres.Row[]>;
export type DatabaseTransaction = postgres.TransactionSql<{ bigint: bigint }>;

/** Listeners for the connections of a pool. Each connection has a number. */
export interface ConnectionEvents {
  /** The connection is being opened, or will be after a delay. */
  onOpening(id: number): void;
  /** The connection is open, has its settings, and can be used. */
  onOpened(id: number): void;
  /** The connection was closed, or could not be opened. */
  onClosed(id: number): void;
}

interface ConnectOptions {
  /** Largest number of connections at a time. */
  readonly poolSize: number;
  readonly applicationName: string;
  /** Settings of the server for these connections (PostgreSQL documentation, chapter 20). */
  readonly settings?: Readonly<Record<string, string>>;
  readonly events?: ConnectionEvents;
}

/** A database that starts cold, fails over or is far away may need seconds for a connection. */
export const CONNECT_TIMEOUT_SECONDS = 10;
/** Longest delay before the second try. The bound doubles with each failure. */
const FIRST_RETRY_DELAY_SECONDS = 0.1;
/** Keeps the delay short, so that an outage ends when the database is reachable again. */
const MAX_RETRY_DELAY_SECONDS = 1;

/**
 * Returns the seconds until the next try after a number of failures. Full jitter, so that instances do not try
 * together.
 */
export function retryDelaySeconds(failures: number): number {
  return (
    Math.random() * Math.min(MAX_RETRY_DELAY_SECONDS, FIRST_RETRY_DELAY_SECONDS * 2 ** failures)
  );
}

/**
 * Settings that each new connection makes by SET. PgBouncer would reject startup parameters that it does not know.
 */
const SESSION_SETTINGS: Readonly<Record<string, string>> = {
  // The format of values that the driver can read. A server or role may have another default.
  TimeZone: "UTC",
  DateStyle: "ISO",
  bytea_output: "hex",
  extra_float_digits: "1",
  // Makes commits durable, because the gateway reports them as durable. A server's default may differ.
  synchronous_commit: "on",
};

/** Returns a database that connects at its first use. Throws DatabaseTlsError if the TLS parameters are invalid. */
export function connectDatabase(target: DatabaseTarget, options: ConnectOptions): Database {
  const { url, path, tls } = readConnection(target.url);
  const { applicationName, events, settings } = options;
  const driverOptions = {
    path,
    max: options.poolSize,
    connect_timeout: CONNECT_TIMEOUT_SECONDS,
    backoff: retryDelaySeconds,
    max_lifetime: null,
    onnotice: () => {},
    connection: { application_name: applicationName },
    types: { bigint: postgres.BigInt },
    ...(tls !== undefined && { ssl: tls }),
    // `session` and `tls` come from the patch in db/patches.
    session: { ...SESSION_SETTINGS, ...settings },
    onopening: events?.onOpening,
    onopened: events?.onOpened,
    onclose: events?.onClosed,
  };
  return postgres(
    url,
    driverOptions as postgres.Options<{ bigint: postgres.PostgresType<bigint> }>,
  );
}

interface Connection extends PostgresAddress {
  readonly tls: DatabaseTls | undefined;
}

/**
 * Parameters that libpq and other clients read themselves. A server would reject them as unknown settings.
 */
const CLIENT_PARAMETERS = [
  "channel_binding",
  "client_encoding",
  "fallback_application_name",
  "gssencmode",
  "keepalives",
  "keepalives_count",
  "keepalives_idle",
  "keepalives_interval",
  "pgbouncer",
  "sslcertmode",
  "sslcompression",
  "sslcrl",
  "sslsni",
  "ssl_max_protocol_version",
  "ssl_min_protocol_version",
  "tcp_user_timeout",
  // The gateway sets it: it finds and ends the sessions of an instance by this name.
  "application_name",
];

/** Parses a connection URL. Throws DatabaseTlsError if the TLS parameters are invalid. */
function readConnection(target: string): Connection {
  const address = readPostgresUrl(target);
  if (!URL.canParse(address.url)) return { ...address, tls: undefined };
  const url = new URL(address.url);
  for (const name of CLIENT_PARAMETERS) url.searchParams.delete(name);
  const tls = takeTls(url.searchParams);
  // libpq does not use TLS on Unix sockets either.
  return { ...address, url: url.href, tls: address.path === undefined ? tls : false };
}

/**
 * Returns true if the connection broke, so that the outcome of the running statement is unknown.
 */
export function isConnectionFailure(error: unknown): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  if (typeof code !== "string") return false;
  return CONNECTION_FAILURES.has(code) || code.startsWith("08") || code.startsWith("57P");
}

const CONNECTION_FAILURES = new Set([
  "CONNECTION_CLOSED",
  "CONNECTION_DESTROYED",
  "CONNECTION_ENDED",
  "CONNECT_TIMEOUT",
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ENOENT",
  "ETIMEDOUT",
  "ECONNABORTED",
  "ENOTCONN",
  "ENETDOWN",
  "ENETUNREACH",
  "EADDRNOTAVAIL",
  "EHOSTDOWN",
  "EMFILE",
  "ENFILE",
  "ENOBUFS",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ERR_SOCKET_CLOSED",
  // cannot_connect_now and too_many_connections: the server runs, but takes no connection now
  "53300",
  // idle_in_transaction_session_timeout: this process was paused, and the server ended its session
  "25P03",
]);

/**
 * Returns true if the server runs but cannot execute the statement now: it is read-only, as a replica after a failover,
 * it has no disk space or memory left, or it was asked to cancel the statement. The statement had no effect.
 */
export function isServerUnable(error: unknown): boolean {
  return UNABLE_STATES.test(sqlState(error) ?? "");
}

/** insufficient_resources, system_error, read_only_sql_transaction, query_canceled */
const UNABLE_STATES = /^(53|58|25006|57014)/;

/** SQLSTATE of a rejected charge whose stored response the database lost in a crash. */
export const RESPONSE_LOST = "GW004";

/** Returns the SQLSTATE if the database itself rejected the statement. */
export function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/**
 * Settings for the case that an instance is paused or its machine is lost. A paused process keeps its sessions and the
 * locks of its transaction. The server ends these before the lease of the instance ends, so that they do not keep
 * others from taking over. It rolls back what the instance was writing.
 */
export const INSTANCE_SETTINGS: Record<string, string> = {
  idle_in_transaction_session_timeout: "2000",
  tcp_keepalives_idle: "5",
  tcp_keepalives_interval: "2",
  tcp_keepalives_count: "3",
};

/**
 * Ends a heartbeat that waits for a lock, with its session, before the gateway replaces the session. Otherwise the
 * server would keep one waiting session after the other. Milliseconds.
 */
export const HEARTBEAT_SETTINGS: Record<string, string> = { lock_timeout: "1000" };

/** A read and the tables that it reads, so that an actor's permissions can be checked. */
export interface Query<Result> {
  readonly name: string;
  readonly tables: readonly string[];
  run(sql: Database): Promise<Result>;
}

/** Runs reads in one snapshot, such as a page of a list and the length of the list. */
export function inOneSnapshot<Result>(
  sql: Database,
  read: (snapshot: DatabaseTransaction) => Promise<Result>,
): Promise<Result> {
  return sql.begin("isolation level repeatable read, read only", read) as Promise<Result>;
}

/**
 * A commit repeats a few statements, and planning them each time costs more than running them. A cached plan must not be
 * one for empty tables, so it always uses indexes. A join that was planned while the table was small may still read a
 * whole index for each batch. So statements of the ledger and of events find their rows by loops or by lateral
 * subqueries with LIMIT.
 */
export const LEDGER_SETTINGS: Record<string, string> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_mergejoin: "off",
  jit: "off",
};

/**
 * Limits how long an instance may hold what others wait for. If it is paused within a transaction, the server ends the
 * transaction. If it waits for a lock, it regularly releases its own row, so that its heartbeat gets through. Both are
 * tried again. Milliseconds.
 */
export const SHARED_LEDGER_SETTINGS: Record<string, string> = {
  ...LEDGER_SETTINGS,
  idle_in_transaction_session_timeout: "1000",
  lock_timeout: "1000",
};

/** SQLSTATEs with which a server rejects a connection: because of the user, the database name, or its current state. */
const REFUSED_CONNECTION = /^(28|3D|55000)/;

/**
 * Returns true if a failure leaves the outcome unknown: the connection broke, or could not be opened again to ask.
 */
export function isOutcomeUnknown(error: unknown): boolean {
  return (
    isConnectionFailure(error) ||
    REFUSED_CONNECTION.test(sqlState(error) ?? "") ||
    // The patch of the driver sets it: the statement was never sent, because no connection could be opened.
    (error as { connecting?: unknown } | null)?.connecting === true
  );
}
