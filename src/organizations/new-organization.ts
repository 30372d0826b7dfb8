import type { NewKey } from "../../../db/queries/key-write.ts";
import type { NewOrganization } from "../../../db/queries/organization-create.ts";
import { generateApiKey, hashApiKey, keyPrefix } from "../../lib/api-key-format.ts";
import { ALL_SCOPES, type ApiKeySettings, type KeyKind } from "../../lib/api-key-record.ts";
import { newId } from "../../lib/ids.ts";
import { initialCreditLimitNano } from "../plans.ts";

export interface OrganizationRequest {
  readonly name: string;
  readonly plan: string;
  readonly startingCreditNano: bigint;
  /** Given secrets, instead of generated ones. */
  readonly managementKey?: string | undefined;
  readonly secretKey?: string | undefined;
}

export interface PreparedOrganization {
  readonly organization: NewOrganization;
  /** Shown once. */
  readonly managementKey: string;
  readonly secretKey: string;
}

/** Everything that a new organization begins with: a management key, a secret key, a starting credit. */
export function prepareOrganization(
  request: OrganizationRequest,
  nowMs: number,
): PreparedOrganization {
  const id = newId("org");
  const managementKey = request.managementKey ?? generateApiKey("management").key;
  const secretKey = request.secretKey ?? generateApiKey("secret").key;
  return {
    organization: {
      id,
      name: request.name,
      plan: request.plan,
      keys: [
        newKey({
          organizationId: id,
          kind: "management",
          secret: managementKey,
          nowMs,
          settings: { name: "Default management key" },
        }),
        newKey({
          organizationId: id,
          kind: "secret",
          secret: secretKey,
          nowMs,
          settings: { name: "Default secret key" },
        }),
      ],
      creditLimitNano: initialCreditLimitNano(request.plan),
      startingCreditNano: request.startingCreditNano,
      creditTransactionId: newId("txn"),
    },
    managementKey,
    secretKey,
  };
}

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
