import type { NewOrganization } from "../../db/queries/organization-create.ts";
import { newKey } from "../keys/new-key.ts";
import { generateApiKey } from "../lib/api-key-format.ts";
import { newId } from "../lib/ids.ts";
import { initialCreditLimitNano } from "../money/plans.ts";

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
