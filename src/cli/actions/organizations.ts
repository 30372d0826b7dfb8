import type { Database } from "../../../db/client.ts";
import { createOrganization } from "../../../db/queries/organization-create.ts";
import { loadOrganization } from "../../../db/queries/organization-load.ts";
import { GatewayError } from "../../lib/errors.ts";
import {
  type OrganizationRequest,
  type PreparedOrganization,
  prepareOrganization,
} from "../../services/organizations/new-organization.ts";

/** Creates an organization with its first keys and its starting credit, or nothing at all. */
export async function addOrganization(
  sql: Database,
  request: OrganizationRequest,
  nowMs: number,
): Promise<PreparedOrganization> {
  const prepared = prepareOrganization(request, nowMs);
  await sql.begin((transaction) => createOrganization(transaction, prepared.organization));
  return prepared;
}

/** Throws organization_not_found. */
export async function requireOrganization(sql: Database, id: string) {
  const organization = await loadOrganization(id).run(sql);
  if (organization !== undefined) return organization;
  throw new GatewayError("organization_not_found", "There is no such organization.");
}
