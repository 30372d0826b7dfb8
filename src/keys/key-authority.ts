/**
 * Which key may do what to which other key. The pipeline has refused secret keys that lack keys:manage, and
 * those that are limited themselves, before any of this is asked (`assertAccess`).
 *
 * - A key grants only scopes that it holds. Scopes that the changed key holds already may stay.
 * - A key cannot change or delete itself.
 * - A secret key cannot change or delete a management key.
 * - A limited secret key sees no other key.
 */
import {
  ALL_SCOPES,
  type ApiKeyRecord,
  areAllScopes,
  holdsEveryScope,
  holdsScope,
  isLimited,
} from "../lib/api-key-record.ts";
import { GatewayError } from "../lib/errors.ts";

/** The scopes of a new key, as they are stored. Undefined means all that the caller holds. Throws 403. */
export function grantedToNew(
  caller: ApiKeyRecord,
  asked: readonly string[] | undefined,
): readonly string[] {
  if (asked === undefined) return caller.scopes;
  const lacking = lackingScopes(caller, asked);
  if (lacking.length > 0) throw cannotGrant(lacking);
  return storedScopes(caller, asked);
}

/** What a change of scopes is stored as. Throws 403. */
export interface ScopeChange {
  readonly scopes: readonly string[];
  /** Scopes that the caller lacks: the changed key must hold them when the change is written. */
  readonly keptScopes: readonly string[];
}

/** Throws 403. */
export function grantedToExisting(
  caller: ApiKeyRecord,
  target: ApiKeyRecord,
  asked: readonly string[],
): ScopeChange {
  const keptScopes = lackingScopes(caller, asked);
  const lacking = keptScopes.filter((scope) => !holdsScope(target, scope));
  if (lacking.length > 0) throw cannotGrant(lacking);
  return { scopes: storedScopes(caller, asked), keptScopes };
}

/** Throws 403. */
export function assertMayTouch(caller: ApiKeyRecord, target: ApiKeyRecord): void {
  if (caller.id === target.id) throw refused("An API key cannot change itself.");
  if (caller.kind === "secret" && target.kind === "management") {
    throw refused("A secret key cannot change a management key.");
  }
}

/** Throws 403. */
export function assertMaySee(caller: ApiKeyRecord, targetId: string): void {
  if (caller.kind === "management" || caller.id === targetId || !isLimited(caller)) return;
  throw refused(
    "This API key has a rate limit, a budget, a model list or an expiry of its own, so it cannot see other keys.",
  );
}

export function cannotGrant(lacking: readonly string[]): GatewayError {
  return refused(`This API key cannot grant what it lacks: ${lacking.join(", ")}.`, "scopes");
}

/** All scopes by their names are every scope only from a caller that holds those that come later too. */
function storedScopes(caller: ApiKeyRecord, asked: readonly string[]): readonly string[] {
  return holdsEveryScope(caller) && areAllScopes(asked) ? ALL_SCOPES : asked;
}

function lackingScopes(caller: ApiKeyRecord, scopes: readonly string[]): string[] {
  return scopes.filter((scope) => !holdsScope(caller, scope));
}

function refused(message: string, param?: string): GatewayError {
  return new GatewayError("key_not_permitted", message, { param });
}
