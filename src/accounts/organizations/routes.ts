import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import { DEFAULT_MAX_KEYS } from "../../../db/queries/api-keys.ts";
import { storedFileBytes } from "../../../db/queries/files.ts";
import type { OperatedOrganization } from "../../../db/queries/organizations.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RouteDefinition } from "../../http/route.ts";
import { usdNumber } from "../../lib/money.ts";
import { feePercentOf, fileQuotaOf } from "../../lib/plans.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { DEFAULT_MAX_WEBHOOKS } from "../../webhooks/webhooks.ts";
import type { OrganizationAdministration } from "./organizations.ts";

/** The fields of an organization that both the organization and operators see. */
export const organizationFields = {
  id: Type.String(),
  name: Type.String(),
  plan: Type.String(),
  fee_percent: Type.Number({ description: "Fee on top of provider cost." }),
  file_quota_bytes: Type.Integer(),
  max_keys: Type.Integer(),
  max_webhooks: Type.Integer(),
  credit_limit_usd: nullable(
    Type.Number({ description: "How far the balance can go below zero; null: no limit." }),
  ),
  computer_use: Type.Boolean({
    description: "Whether its requests may offer models tools that operate a computer.",
  }),
  suspended: Type.Boolean(),
  key_count: Type.Integer({ description: "Keys that are not deleted." }),
  created_at: Type.String(),
};

/** Returns the effective settings: of the organization, or else of its plan or the gateway. */
export function organizationTerms(organization: OperatedOrganization) {
  const { plan, creditLimitNano } = organization;
  return {
    id: organization.id,
    name: organization.name,
    plan,
    fee_percent: feePercentOf(organization),
    file_quota_bytes: fileQuotaOf(organization),
    max_keys: organization.maxKeys ?? DEFAULT_MAX_KEYS,
    max_webhooks: organization.maxWebhooks ?? DEFAULT_MAX_WEBHOOKS,
    credit_limit_usd: creditLimitNano === null ? null : usdNumber(creditLimitNano),
    computer_use: organization.mayUseComputer,
    suspended: organization.isSuspended,
    key_count: organization.keyCount,
    created_at: isoTime(organization.createdAtMs),
  };
}

const callersOrganization = Type.Object(
  {
    ...organizationFields,
    file_used_bytes: Type.Integer({ description: "Bytes of its stored files." }),
  },
  { title: "Organization" },
);

interface OrganizationRouteDependencies {
  readonly sql: Database;
  readonly organizations: OrganizationAdministration;
}

/** Returns the route for the organization of the calling key (contract 7). */
export function organizationRoutes({
  sql,
  organizations,
}: OrganizationRouteDependencies): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/organization",
      tag: "Organization",
      operationId: "organization.retrieve",
      summary: "Retrieve the organization of the calling key",
      access: { kind: "administration", scope: "usage:read" },
      responses: { 200: { description: "The organization.", schema: callersOrganization } },
      async handle({ caller: { key } }) {
        const [organization, usedBytes] = await Promise.all([
          organizations.find(key.organizationId),
          storedFileBytes(sql, key.organizationId),
        ]);
        return jsonResponse({ ...organizationTerms(organization), file_used_bytes: usedBytes });
      },
    },
  ];
}
