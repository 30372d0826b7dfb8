import type { Database } from "../../db/client.ts";
import { insertOperatorKey, type OperatorKey } from "../../db/queries/operator-keys.ts";
import {
  createOrganization,
  hasOrganizations,
  type NewOrganization,
} from "../../db/queries/organizations.ts";
import { newKey } from "../keys/api-keys.ts";
import { generateApiKey, hashApiKey, keyPrefix } from "../lib/api-key-format.ts";
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

const FIRST_START_LOCK = 7_203_114_503;

/**
 * Creates the default organization where there is none yet. `keep` is given the keys before anything is
 * committed, so that a process that dies in between leaves no organization without known keys.
 */
export async function createFirstOrganization(
  sql: Database,
  request: OrganizationRequest,
  nowMs: number,
  keep: (prepared: PreparedOrganization) => Promise<void>,
): Promise<PreparedOrganization | undefined> {
  return sql.begin(async (transaction) => {
    await transaction`SELECT pg_advisory_xact_lock(${FIRST_START_LOCK})`;
    if (await hasOrganizations(transaction)) return undefined;
    const prepared = prepareOrganization(request, nowMs);
    await createOrganization(transaction, prepared.organization);
    await keep(prepared);
    return prepared;
  });
}

interface OperatorKeyRequest {
  readonly name: string;
  /** A given key instead of a generated one. */
  readonly secret?: string;
  readonly nowMs: number;
}

/** Adds an operator key; one that exists, or that was revoked, stays as it is. */
export async function addOperatorKey(
  sql: Database,
  { name, secret = generateApiKey("operator").key, nowMs }: OperatorKeyRequest,
): Promise<{ key: OperatorKey; secret: string; isNew: boolean }> {
  const key = { id: newId("opk"), name, keyPrefix: keyPrefix(secret), createdAtMs: nowMs };
  const isNew = await insertOperatorKey(sql, { ...key, keyHash: hashApiKey(secret) });
  return { key, secret, isNew };
}
