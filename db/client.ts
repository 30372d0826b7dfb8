import postgres from "postgres";
import { type DatabaseTls, takeTls } from "./database-tls.ts";

interface PostgresAddress {
  readonly url: string;
  /** The Unix socket to dial in place of the URL's host and port. */
  readonly path?: string;
}

const DEFAULT_PORT = "5432";

/**
 * Tells a Unix socket apart from a host in a connection URL, which the driver does not do itself:
 * `postgres://user@localhost/db?host=/folder` and `postgres://user@%2Ffolder/db`, as libpq has them
 * (PostgreSQL documentation, 32.1.1.2 Connection URIs). Hand both parts of the answer to the driver:
 * `postgres(address.url, { path: address.path })`.
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

/** How a database is reached: a URL as readPostgresUrl takes it. */
export interface DatabaseTarget {
  readonly url: string;
}

export type Database = postgres.Sql<{ bigint: bigint }>;
/** A part of a statement. */
export type SqlFragment = postgres.PendingQuery<postgres.Row[]>;
export type DatabaseTransaction = postgres.TransactionSql<{ bigint: bigint }>;

/** What becomes of the connections of a pool, each by its number. */
export interface ConnectionEvents {
  /** It is being opened, or will be after a delay. */
  onOpening(id: number): void;
  /** It stands: settings are made, and it serves. */
  onOpened(id: number): void;
  /** It was closed, or could not be opened. */
  onClosed(id: number): void;
}

interface ConnectOptions {
  /** Most connections at a time. */
  readonly poolSize: number;
  readonly applicationName: string;
  /** Settings of the server for these connections (PostgreSQL documentation, chapter 20). */
  readonly settings?: Readonly<Record<string, string>>;
  readonly events?: ConnectionEvents;
}

/** A database that starts cold, fails over or is far away may take seconds for a connection. */
export const CONNECT_TIMEOUT_SECONDS = 10;
/** The most that the second try waits; the bound doubles with each failure. */
const FIRST_RETRY_DELAY_SECONDS = 0.1;
/** An outage must end when the database is back. */
const MAX_RETRY_DELAY_SECONDS = 1;

/** Seconds until the next try after this number of failures: full jitter, so that instances do not try together. */
export function retryDelaySeconds(failures: number): number {
  return (
    Math.random() * Math.min(MAX_RETRY_DELAY_SECONDS, FIRST_RETRY_DELAY_SECONDS * 2 ** failures)
  );
}

/**
 * Made by SET when a connection stands, not by startup parameters: PgBouncer refuses a client that brings
 * parameters which it does not know.
 */
const SESSION_SETTINGS: Readonly<Record<string, string>> = {
  // How values are written: the driver reads them so only, and a server or a role may have it otherwise.
  TimeZone: "UTC",
  DateStyle: "ISO",
  bytea_output: "hex",
  extra_float_digits: "1",
  // What is reported as durable is durable: a server's default may differ.
  synchronous_commit: "on",
};

/** Connects when it is first used. Throws DatabaseTlsError. */
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
    // These are the patch's: see db/patches.
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

/** What libpq and other clients read themselves; a server would refuse it as an unknown setting. */
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
  // Sessions of an instance are found, and ended, by the names that they get here.
  "application_name",
];

/** Throws DatabaseTlsError. */
function readConnection(target: string): Connection {
  const address = readPostgresUrl(target);
  if (!URL.canParse(address.url)) return { ...address, tls: undefined };
  const url = new URL(address.url);
  for (const name of CLIENT_PARAMETERS) url.searchParams.delete(name);
  const tls = takeTls(url.searchParams);
  // libpq has no TLS on Unix sockets either.
  return { ...address, url: url.href, tls: address.path === undefined ? tls : false };
}

/** True where the connection broke, so that nothing is known about what was under way. */
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
  // cannot_connect_now and too_many_connections: the server lives, but not for us yet
  "53300",
  // idle_in_transaction_session_timeout: this process stood still, and its session was ended
  "25P03",
]);

/**
 * True where the server lives and can do nothing of the kind for the moment: it is read-only, as a replica
 * in whose place it stood before, out of disk or memory, or was asked to end the statement. Nothing was done.
 */
export function isServerUnable(error: unknown): boolean {
  return UNABLE_STATES.test(sqlState(error) ?? "");
}

/** insufficient_resources, system_error, read_only_sql_transaction, query_canceled */
const UNABLE_STATES = /^(53|58|25006|57014)/;

/** SQLSTATE with which a charge is refused whose stored response the database lost as it crashed. */
export const RESPONSE_LOST = "GW004";

/** SQLSTATE of a refused statement, where the database itself answered. */
export function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/**
 * What the server does where an instance stands still or its machine is gone. A paused process keeps its
 * sessions, and with them the locks of a transaction that it is in: those end before its lease does, so
 * that they cannot keep others from taking over. What it was writing is then rolled back.
 */
export const INSTANCE_SETTINGS: Record<string, string> = {
  idle_in_transaction_session_timeout: "2000",
  tcp_keepalives_idle: "5",
  tcp_keepalives_interval: "2",
  tcp_keepalives_count: "3",
};

/**
 * A heartbeat that waits for a lock ends before it is given up, with its session, for a new one: else the
 * server would keep one session after the other waiting. Milliseconds.
 */
export const HEARTBEAT_SETTINGS: Record<string, string> = { lock_timeout: "1000" };

/** A read, with the tables it reads, so that an actor's permissions can be checked against it. */
export interface Query<Result> {
  readonly name: string;
  readonly tables: readonly string[];
  run(sql: Database): Promise<Result>;
}

/** Runs reads that have to agree with one another, such as a page of a list and how long the list is. */
export function inOneSnapshot<Result>(
  sql: Database,
  read: (snapshot: DatabaseTransaction) => Promise<Result>,
): Promise<Result> {
  return sql.begin("isolation level repeatable read, read only", read) as Promise<Result>;
}

/**
 * A commit repeats the same few statements: planning them each time costs more than running them.
 * A plan that is kept must not be one that was made for empty tables, so it takes indexes throughout. That does not
 * keep a join from reading a whole index for each batch if it was planned while the table was small: statements on
 * the paths of money and events find their rows by loops or by lateral subqueries with LIMIT.
 */
export const LEDGER_SETTINGS: Record<string, string> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_mergejoin: "off",
  jit: "off",
};

/**
 * With other instances, none may keep what the others wait for: one that is paused in the middle of a
 * transaction loses it, and one that waits for a lock lets go of its own row now and then, so that its
 * heartbeat comes through. Both try again. Milliseconds.
 */
export const SHARED_LEDGER_SETTINGS: Record<string, string> = {
  ...LEDGER_SETTINGS,
  idle_in_transaction_session_timeout: "1000",
  lock_timeout: "1000",
};

/** With which a server refuses a connection, not a statement: who asks, for which database, and now. */
const REFUSED_CONNECTION = /^(28|3D|55000)/;

/**
 * True if a failure says nothing about what was under way: the connection broke, or could not be opened
 * again to ask.
 */
export function isOutcomeUnknown(error: unknown): boolean {
  return (
    isConnectionFailure(error) ||
    REFUSED_CONNECTION.test(sqlState(error) ?? "") ||
    // Set by the patch of the driver: the statement was never sent, whatever kept the connection from opening.
    (error as { connecting?: unknown } | null)?.connecting === true
  );
}
