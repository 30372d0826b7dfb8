import type { NewKey } from "../../db/queries/key-write.ts";
import { hashApiKey, keyPrefix } from "../lib/api-key-format.ts";
import { ALL_SCOPES, type ApiKeySettings, type KeyKind } from "../lib/api-key-record.ts";
import { newId } from "../lib/ids.ts";

export interface KeyRequest {
  readonly organizationId: string;
  readonly kind: KeyKind;
  readonly secret: string;
  readonly nowMs: number;
  readonly settings: Partial<ApiKeySettings> & Pick<ApiKeySettings, "name">;
}

/** A key as it is inserted: what is not set is unlimited, and all scopes are given. */
export function newKey({ organizationId, kind, secret, nowMs, settings }: KeyRequest): NewKey {
  return {
    id: newId("key"),
    organizationId,
    kind,
    keyHash: hashApiKey(secret),
    keyPrefix: keyPrefix(secret),
    createdAtMs: nowMs,
    name: settings.name,
    scopes: settings.scopes ?? ALL_SCOPES,
    rateLimitRpm: settings.rateLimitRpm ?? null,
    dailyBudgetNano: settings.dailyBudgetNano ?? null,
    monthlyBudgetNano: settings.monthlyBudgetNano ?? null,
    allowedModels: settings.allowedModels ?? null,
    expiresAtMs: settings.expiresAtMs ?? null,
    isActive: settings.isActive ?? true,
  };
}
