import type { Database } from "../../../db/client.ts";
import {
  changeOrganization,
  createOrganization,
  findOperatedOrganization,
  listOrganizations,
  loadOrganization,
  type OperatedOrganization,
} from "../../../db/queries/organizations.ts";
import { GatewayError } from "../../lib/errors.ts";
import {
  creditLimitAfter,
  type OrganizationChange,
  type OrganizationRequest,
  type PreparedOrganization,
  prepareOrganization,
} from "../../organizations/organizations.ts";
import { UsageError } from "../command.ts";
import { orderCreditLimit, type Patience } from "./adjust-credit.ts";

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

/**
 * The id of the organization that is meant: the given one, or the only one there is. Throws
 * organization_not_found, and UsageError where there are several.
 */
export async function organizationIdOf(sql: Database, given: string | undefined): Promise<string> {
  if (given !== undefined) return given;
  const { organizations, total } = await listOrganizations(sql, { limit: 1, offset: 0 });
  if (total === 1) return organizations[0]!.id;
  if (total > 1) throw new UsageError(`there are ${total} organizations: name one with --org`);
  throw new GatewayError("organization_not_found", "There is no organization yet.");
}

/**
 * Changes what the operator sets for an organization; the credit limit first, because it may be refused.
 * Throws organization_not_found and insufficient_credits.
 */
export async function updateOrganization(
  sql: Database,
  id: string,
  change: OrganizationChange,
  patience: Patience,
): Promise<OperatedOrganization> {
  const { creditLimitNano, ...settings } = change;
  const before = await operatedOrganization(sql, id);
  const limit = creditLimitAfter(before, change);
  if (limit !== before.creditLimitNano) {
    await orderCreditLimit(sql, { organizationId: id, creditLimitNano: limit }, patience);
  }
  await sql.begin((transaction) => changeOrganization(transaction, id, settings));
  return operatedOrganization(sql, id);
}

async function operatedOrganization(sql: Database, id: string): Promise<OperatedOrganization> {
  const found = await findOperatedOrganization(sql, id);
  if (found !== undefined) return found;
  throw new GatewayError("organization_not_found", "There is no such organization.");
}
