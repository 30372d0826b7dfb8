import {
  type Database,
  type DatabaseTransaction,
  isConnectionFailure,
} from "../../../../db/client.ts";
import { waitUntil } from "../../../../db/embedded/process-table.ts";
import {
  type CreditCommand,
  type CreditCommandOutcome,
  type CreditOrder,
  creditCommandEffect,
  creditCommandOutcome,
  insertCreditCommand,
  MAX_CREDIT_LIMIT_NANO,
  refuseCommandEffect,
  withdrawCreditCommand,
} from "../../../../db/queries/credit-commands.ts";
import { findCreditEntry, type PostedEntry } from "../../../../db/queries/credit-list.ts";
import {
  type BalanceAtRest,
  balanceAtRest,
  claimRest,
} from "../../../../db/queries/database-server.ts";
import {
  createOrganization,
  findOperatedOrganization,
  listOrganizations,
  loadOrganization,
  type OperatedOrganization,
} from "../../../../db/queries/organizations.ts";
import {
  applySettings,
  assertNotSubscribing,
  creditLimitAfter,
  type OrganizationChange,
  type OrganizationRequest,
  type PreparedOrganization,
  prepareOrganization,
} from "../../../accounts/organizations/organizations.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { newId } from "../../../lib/ids.ts";
import { type NanoUsd, usdText } from "../../../lib/money.ts";
import { UsageError } from "../command.ts";

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
 * Throws organization_not_found, insufficient_credits and subscription_changing.
 */
export async function updateOrganization(
  sql: Database,
  id: string,
  change: OrganizationChange,
  patience: Patience,
): Promise<OperatedOrganization> {
  const { creditLimitNano, ...settings } = change;
  const before = await operatedOrganization(sql, id);
  await assertNotSubscribing(sql, id, settings);
  const limit = creditLimitAfter(before, change);
  if (limit !== before.creditLimitNano) {
    await orderCreditLimit(sql, { organizationId: id, creditLimitNano: limit }, patience);
  }
  await sql.begin((transaction) => applySettings(transaction, id, settings));
  return operatedOrganization(sql, id);
}

async function operatedOrganization(sql: Database, id: string): Promise<OperatedOrganization> {
  const found = await findOperatedOrganization(sql, id);
  if (found !== undefined) return found;
  throw new GatewayError("organization_not_found", "There is no such organization.");
}

/*
 * An order on a balance or a credit limit, a row in credit_commands, is open, then done or refused, or
 * withdrawn. A running gateway holds money in its memory, so it alone may finish an order; where none runs,
 * this process does. Both claim the row in the transaction that carries it out, so that happens once. Only
 * this process withdraws it, when its time is up.
 */

interface AdjustmentRequest {
  /** A new one where it is left out. */
  readonly orderId?: string;
  readonly organizationId: string;
  /** Negative takes from the balance, at most what is not held. */
  readonly amountNano: NanoUsd;
  readonly description: string;
}

export interface Patience {
  readonly timeoutMs: number;
  /** Ends the wait before its time. */
  readonly interrupted: AbortSignal;
}

const MAX_BIGINT = 2n ** 63n - 1n;

/**
 * Posts an adjustment, beside a running gateway or without one. Throws insufficient_credits and
 * organization_not_found, and an Error that says how things stand where it was not done in time.
 */
export async function adjustCredit(
  sql: Database,
  request: AdjustmentRequest,
  patience: Patience,
): Promise<PostedEntry> {
  const { creditNano } = await requireOrganization(sql, request.organizationId);
  if (creditNano + request.amountNano > MAX_BIGINT) {
    throw new Error("the balance would be larger than can be counted: nothing was posted");
  }
  const { orderId: id = newId("cmd"), ...order } = request;
  const command = { ...order, kind: "adjustment", id } as const;
  const outcome = await carryOutOrder(sql, { ...command, transactionId: newId("txn") }, patience);
  return postedEntry(sql, request, outcome);
}

interface CreditLimitRequest {
  readonly organizationId: string;
  /** Null is without limit. */
  readonly creditLimitNano: NanoUsd | null;
}

/** As adjustCredit, for how far the balance may go below zero. */
export async function orderCreditLimit(
  sql: Database,
  request: CreditLimitRequest,
  patience: Patience,
): Promise<void> {
  const { organizationId, creditLimitNano } = request;
  const { creditNano, postedNano } = await requireOrganization(sql, organizationId);
  if (creditLimitNano !== null && creditLimitNano > MAX_CREDIT_LIMIT_NANO) {
    throw new Error(`a credit limit is at most ${usdText(MAX_CREDIT_LIMIT_NANO)} USD`);
  }
  const command = { ...request, kind: "credit-limit", id: newId("cmd") } as const;
  const { isRefused } = await carryOutOrder(
    sql,
    { ...command, transactionId: newId("txn") },
    patience,
  );
  if (!isRefused) return;
  throw new GatewayError(
    "insufficient_credits",
    `The balance is ${usdText(creditNano - postedNano)} USD, and running requests may hold a part of it: more than the new credit limit is used or held.`,
  );
}

async function carryOutOrder(
  sql: Database,
  command: CreditCommand,
  patience: Patience,
): Promise<CreditCommandOutcome> {
  try {
    await sql.begin(async (transaction) => {
      await insertCreditCommand(transaction, command);
      await carryOutAtRest(transaction, command);
    });
    return await awaitOutcome(sql, command, patience);
  } catch (error) {
    if (!isConnectionFailure(error)) throw error;
    throw new Error(
      `the connection to the database broke, so it is not known whether order ${command.id} was or will be carried out: look at the organization before you give it again`,
      { cause: error },
    );
  }
}

/** Finishes an open order where no gateway runs; otherwise does nothing. */
async function carryOutAtRest(sql: DatabaseTransaction, command: CreditCommand): Promise<void> {
  if (!(await claimRest(sql))) return;
  const balance = await balanceAtRest(sql, command.organizationId);
  const isCovered = balance !== undefined && isCoveredBy(balance, command);
  const effect = isCovered ? creditCommandEffect(command) : refuseCommandEffect(command);
  await effect.run(sql);
}

function isCoveredBy({ unheldNano, creditLimitNano }: BalanceAtRest, order: CreditOrder): boolean {
  const isLimit = order.kind === "credit-limit";
  const limitNano = isLimit ? order.creditLimitNano : creditLimitNano;
  if (limitNano === null || (!isLimit && order.amountNano >= 0n)) return true;
  return unheldNano + limitNano + (isLimit ? 0n : order.amountNano) >= 0n;
}

async function awaitOutcome(
  sql: Database,
  command: CreditCommand,
  { timeoutMs, interrupted }: Patience,
): Promise<CreditCommandOutcome> {
  let outcome: CreditCommandOutcome | undefined;
  const isDone = async (): Promise<boolean> => {
    outcome = await creditCommandOutcome(command.id).run(sql);
    if (outcome?.isDone === true) return true;
    // The gateway that sent the heartbeat may have stopped since.
    await sql.begin((transaction) => carryOutAtRest(transaction, command));
    return interrupted.aborted;
  };
  await waitUntil(() => isDone().catch(unlessUnreachable), timeoutMs);
  if (outcome?.isDone === true) return outcome;
  if (!(await withdrawCreditCommand(sql, command.id))) {
    outcome = await creditCommandOutcome(command.id).run(sql);
    if (outcome?.isDone === true) return outcome;
  }
  throw new Error(
    interrupted.aborted
      ? "interrupted: the order was withdrawn, and nothing was changed"
      : `the running gateway did not carry the order out within ${timeoutMs / 1000} s: it was withdrawn, and nothing was changed`,
  );
}

/** While the database is out of reach nothing is known, and it may come back in time. */
function unlessUnreachable(error: unknown): boolean {
  if (!isConnectionFailure(error)) throw error;
  return false;
}

async function postedEntry(
  sql: Database,
  { organizationId, amountNano }: AdjustmentRequest,
  { transactionId }: CreditCommandOutcome,
): Promise<PostedEntry> {
  if (transactionId === null) {
    const { creditNano, postedNano } = await requireOrganization(sql, organizationId);
    throw new GatewayError(
      "insufficient_credits",
      `The balance is ${usdText(creditNano - postedNano)} USD, and running requests may hold a part of it: ${usdText(-amountNano)} USD cannot be taken.`,
    );
  }
  const entry = await findCreditEntry(sql, organizationId, transactionId);
  if (entry === undefined) throw new Error(`transaction ${transactionId} is not to be found`);
  return entry;
}
