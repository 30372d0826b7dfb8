import { isConnectionFailure, sqlState } from "../client.ts";

/** With which a server refuses a connection, not a statement: who asks, for which database, and now. */
const REFUSED_CONNECTION = /^(28|3D|55000)/;

/**
 * True where a failure says nothing about what was under way: the connection broke, or could not be made
 * again to ask.
 */
export function isOutcomeUnknown(error: unknown): boolean {
  return isConnectionFailure(error) || REFUSED_CONNECTION.test(sqlState(error) ?? "");
}
