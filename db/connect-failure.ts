import { CONNECT_TIMEOUT_SECONDS, type Database, isConnectionFailure, sqlState } from "./client.ts";
import { DatabaseTlsError } from "./database-tls.ts";
import { MigrationError } from "./migrate.ts";
import { readServerVersion } from "./queries/database-server.ts";

const OLDEST_MAJOR_VERSION = 15;

/** The database cannot be used, and trying again does not help. The message is for the operator. */
export class UnusableDatabaseError extends Error {}

/** Texts that replace the driver's messages, which name a system call. */
const PLAIN_TEXTS: Readonly<Record<string, string>> = {
  CONNECT_TIMEOUT: `no connection within ${CONNECT_TIMEOUT_SECONDS} s`,
  CONNECTION_CLOSED: "the server closed the connection",
  CONNECTION_DESTROYED: "the connection did not answer and was closed",
  CONNECTION_ENDED: "the connection was ended",
  ECONNREFUSED: "connection refused",
  ECONNRESET: "the connection was reset",
  EHOSTUNREACH: "the host cannot be reached",
  ENETUNREACH: "the network cannot be reached",
  ENOENT: "there is no such Unix socket",
  ENOTFOUND: "the host name cannot be resolved",
  EAI_AGAIN: "the host name cannot be resolved",
  DEPTH_ZERO_SELF_SIGNED_CERT: "the server's certificate is self-signed: set sslrootcert to it",
  SELF_SIGNED_CERT_IN_CHAIN:
    "the server's certificate is signed by an unknown authority: set sslrootcert to the certificate of that authority",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    "the server's certificate is signed by an unknown authority: set sslrootcert to the certificate of that authority",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    "the server's certificate is signed by an unknown authority: set sslrootcert to the certificate of that authority",
  ERR_TLS_CERT_ALTNAME_INVALID: "the server's certificate is for another host",
  TLS_NOT_OFFERED: "the server does not offer TLS, which sslmode requires",
};

const INSUFFICIENT_PRIVILEGE = "42501";
/** The client is not in pg_hba.conf, among other reasons. */
const INVALID_AUTHORIZATION = "28000";

/** Describes a failure in one line, without the database's address, which the caller knows. */
export function describeFailure(error: unknown): string {
  const cause = rootCause(error);
  const message = cause instanceof Error ? cause.message : String(cause);
  const { code } = (cause ?? {}) as { code?: unknown };
  const reason = PLAIN_TEXTS[String(code)] ?? message.split("\n", 1)[0]!;
  const text = error instanceof MigrationError ? `migration ${error.migration}: ${reason}` : reason;
  if (sqlState(cause) === INSUFFICIENT_PRIVILEGE) {
    return `${text}; docs/guides/operate/databases.md lists the rights that the role needs`;
  }
  if (sqlState(cause) === INVALID_AUTHORIZATION && message.includes("no encryption")) {
    return `${text}; does the server want TLS (sslmode=require)?`;
  }
  return text;
}

/** Returns true for a failure that may end by itself, such as a server that is starting. */
export function isTransientFailure(error: unknown): boolean {
  return isConnectionFailure(rootCause(error));
}

/** Returns true if the driver or the database failed, and not the program. */
export function isDatabaseFailure(error: unknown): boolean {
  const cause = rootCause(error);
  return (
    cause instanceof UnusableDatabaseError ||
    cause instanceof DatabaseTlsError ||
    isConnectionFailure(cause) ||
    sqlState(cause) !== undefined ||
    (cause as { connecting?: unknown } | null)?.connecting === true
  );
}

/** Returns the innermost cause. Outer errors quote the whole statement. */
function rootCause(error: unknown): unknown {
  return error instanceof Error && error.cause !== undefined ? rootCause(error.cause) : error;
}

/**
 * Connects, and checks that the server is new enough and that each connection has its own session. `probe` is another
 * connection to the same database. Throws UnusableDatabaseError if a check fails, or the driver's error if it cannot
 * connect.
 */
export async function assertUsable(sql: Database, probe: Database): Promise<void> {
  // Opens both together, because opening one may take seconds.
  const [version] = await Promise.all([readServerVersion(sql), probe`SELECT 1`]);
  if (version.major < OLDEST_MAJOR_VERSION) {
    throw new UnusableDatabaseError(
      `it is Postgres ${version.text}, but must be ${OLDEST_MAJOR_VERSION} or later`,
    );
  }
  if (await sharesSessions(sql, probe)) throw new UnusableDatabaseError(TRANSACTION_MODE);
}

const TRANSACTION_MODE =
  "its connection pooler is in transaction mode, which gives a connection another session for each transaction: the gateway needs a pooler in session mode (PgBouncer: pool_mode = session), or the server's own address";

const ROUNDS = 2;

/**
 * Returns true if two connections, used in turns, share a session of the server, or if one of them has two sessions:
 * then a pooler assigns sessions per transaction. A server, or a pooler in session mode, gives each connection its own.
 */
async function sharesSessions(one: Database, other: Database): Promise<boolean> {
  const seen = [new Set<number>(), new Set<number>()] as const;
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, sql] of [one, other].entries()) {
      const [row] = await sql<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
      seen[index]!.add(row!.pid);
    }
  }
  return seen.some(({ size }) => size > 1) || !seen[0].isDisjointFrom(seen[1]);
}
