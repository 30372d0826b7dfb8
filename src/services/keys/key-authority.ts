/**
 * Who may do what to which key. No key may grant a scope that it lacks, or change itself; else a management
 * key may do everything in its organization. A secret key with the scope keys:manage may not touch a
 * management key, and, where it is itself limited, may not make or widen keys: it could escape its limits.
 */
import type { ApiKeyRecord, ApiKeySettings } from "../../lib/api-key-record.ts";
import { GatewayError } from "../../lib/errors.ts";

export function assertMayCreate(caller: ApiKeyRecord, scopes: readonly string[]): void {
  assertHolds(caller, scopes);
  if (caller.kind === "secret" && isLimited(caller)) throw escapes("create keys");
}

export function assertMayChange(
  caller: ApiKeyRecord,
  target: ApiKeyRecord,
  changed: Partial<ApiKeySettings>,
): void {
  assertMayTouch(caller, target);
  const added = (changed.scopes ?? []).filter((scope) => !target.scopes.includes(scope));
  assertHolds(caller, added);
  if (caller.kind === "management") return;
  if (isLimited(caller) && isWidened(target, changed)) throw escapes("widen keys");
}

export function assertMayTouch(caller: ApiKeyRecord, target: ApiKeyRecord): void {
  if (caller.id === target.id) throw refused("An API key cannot change itself.");
  if (caller.kind === "secret" && target.kind === "management") {
    throw refused("A secret key cannot change a management key.");
  }
}

function assertHolds(caller: ApiKeyRecord, scopes: readonly string[]): void {
  const lacking = scopes.filter((scope) => !caller.scopes.includes(scope));
  if (lacking.length === 0) return;
  throw refused(`This API key cannot grant what it lacks: ${lacking.join(", ")}.`, "scopes");
}

function isLimited(key: ApiKeyRecord): boolean {
  return (
    key.rateLimitRpm !== null ||
    key.dailyBudgetNano !== null ||
    key.monthlyBudgetNano !== null ||
    key.allowedModels !== null ||
    key.expiresAtMs !== null
  );
}

function isWidened(target: ApiKeyRecord, changed: Partial<ApiKeySettings>): boolean {
  return (
    isRaised(target.rateLimitRpm, changed.rateLimitRpm) ||
    isRaised(target.dailyBudgetNano, changed.dailyBudgetNano) ||
    isRaised(target.monthlyBudgetNano, changed.monthlyBudgetNano) ||
    isRaised(target.expiresAtMs, changed.expiresAtMs) ||
    (changed.isActive === true && !target.isActive) ||
    (changed.scopes ?? []).some((scope) => !target.scopes.includes(scope)) ||
    hasMoreModels(target.allowedModels, changed.allowedModels)
  );
}

/** Undefined leaves a limit as it is, null takes it away. */
function isRaised<Amount extends number | bigint>(
  current: Amount | null,
  next: Amount | null | undefined,
): boolean {
  if (next === undefined || current === null) return false;
  return next === null || next > current;
}

function hasMoreModels(
  current: readonly string[] | null,
  next: readonly string[] | null | undefined,
): boolean {
  if (next === undefined || current === null) return false;
  return next === null || next.some((model) => !current.includes(model));
}

function refused(message: string, param?: string): GatewayError {
  return new GatewayError("key_not_permitted", message, { param });
}

function escapes(what: string): GatewayError {
  return refused(
    `This API key has a rate limit, a budget, a model list or an expiry of its own, so it cannot ${what}.`,
  );
}
