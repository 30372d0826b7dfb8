import { isConnectionFailure, sqlState } from "../client.ts";

/** Classes of SQLSTATE with which a server refuses a connection, not a statement: 28 and 3D. */
const REFUSED_CONNECTION = /^(28|3D)/;

/**
 * True where a failure says nothing about what was under way: the connection broke, or could not be made
 * again to ask.
 */
export function isOutcomeUnknown(error: unknown): boolean {
  return isConnectionFailure(error) || REFUSED_CONNECTION.test(sqlState(error) ?? "");
}
