import type { Database } from "../../db/client.ts";
import { createOrganization, hasOrganizations } from "../../db/queries/organization-create.ts";
import {
  type OrganizationRequest,
  type PreparedOrganization,
  prepareOrganization,
} from "./new-organization.ts";

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
