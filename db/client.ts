import postgres from "postgres";
import { readPostgresUrl } from "./postgres-url.ts";

/** How a database is reached: a URL as readPostgresUrl takes it. */
export interface DatabaseTarget {
  readonly url: string;
}

export type Database = postgres.Sql<{ bigint: bigint }>;
export type DatabaseTransaction = postgres.TransactionSql<{ bigint: bigint }>;

export interface ConnectOptions {
  /** Most connections at a time. */
  readonly poolSize: number;
  readonly applicationName: string;
  /** Settings of the server for these connections (PostgreSQL documentation, chapter 20). */
  readonly settings?: Readonly<Record<string, string>>;
}

const CONNECT_TIMEOUT_SECONDS = 5;
/** The driver's own delays between reconnects grow to 20 s; an outage must end when the database is back. */
const RECONNECT_DELAY_SECONDS = 0.1;

export function connectDatabase(target: DatabaseTarget, options: ConnectOptions): Database {
  const address = readPostgresUrl(target.url);
  return postgres(address.url, {
    path: address.path,
    max: options.poolSize,
    connect_timeout: CONNECT_TIMEOUT_SECONDS,
    backoff: () => RECONNECT_DELAY_SECONDS,
    max_lifetime: null,
    onnotice: () => {},
    connection: {
      application_name: options.applicationName,
      // How values are written: the driver reads them so only, and a server or a role may have it otherwise.
      TimeZone: "UTC",
      DateStyle: "ISO",
      bytea_output: "hex",
      extra_float_digits: "1",
      // What is told to be durable is: a server may have it otherwise.
      synchronous_commit: "on",
      ...options.settings,
    },
    types: { bigint: postgres.BigInt },
  });
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
 * in whose place it stood before, out of disk or memory, or was told to end the statement. Nothing was done.
 */
export function isServerUnable(error: unknown): boolean {
  return UNABLE_STATES.test(sqlState(error) ?? "");
}

/** insufficient_resources, system_error, read_only_sql_transaction, query_canceled */
const UNABLE_STATES = /^(53|58|25006|57014)/;

/** SQLSTATE of a refused statement, where the database itself answered. */
export function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}
