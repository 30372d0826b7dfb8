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

/** Creates an organization with its first keys and its starting credit, in one transaction. */
export async function addOrganization(
  sql: Database,
  request: OrganizationRequest,
  nowMs: number,
): Promise<PreparedOrganization> {
  const prepared = prepareOrganization(request, nowMs);
  await sql.begin((transaction) => createOrganization(transaction, prepared.organization));
  return prepared;
}

/** Returns the organization. Throws organization_not_found if it does not exist. */
export async function requireOrganization(sql: Database, id: string) {
  const organization = await loadOrganization(id).run(sql);
  if (organization !== undefined) return organization;
  throw new GatewayError("organization_not_found", "There is no such organization.");
}

/**
 * Returns the given id, or the id of the only organization. Throws organization_not_found, and UsageError if several
 * exist and none is given.
 */
export async function organizationIdOf(sql: Database, given: string | undefined): Promise<string> {
  if (given !== undefined) return given;
  const { organizations, total } = await listOrganizations(sql, { limit: 1, offset: 0 });
  if (total === 1) return organizations[0]!.id;
  if (total > 1)
    throw new UsageError(`this database has ${total} organizations: select one with --org`);
  throw new GatewayError("organization_not_found", "No organization exists yet.");
}

/**
 * Changes the operator's settings of an organization. The credit limit is first, because it may be rejected. Throws
 * organization_not_found, insufficient_credits and subscription_changing.
 */
export async function updateOrganization(
  sql: Database,
  id: string,
  change: OrganizationChange,
  waitOptions: WaitOptions,
): Promise<OperatedOrganization> {
  const { creditLimitNano, ...settings } = change;
  const before = await operatedOrganization(sql, id);
  await assertNotSubscribing(sql, id, settings);
  const limit = creditLimitAfter(before, change);
  if (limit !== before.creditLimitNano) {
    await orderCreditLimit(sql, { organizationId: id, creditLimitNano: limit }, waitOptions);
  }
  await sql.begin((transaction) => applySettings(transaction, id, settings));
  return operatedOrganization(sql, id);
}

async function operatedOrganization(sql: Database, id: string): Promise<OperatedOrganization> {
  const organization = await findOperatedOrganization(sql, id);
  if (organization !== undefined) return organization;
  throw new GatewayError("organization_not_found", "There is no such organization.");
}

/*
 * An order to change a balance or a credit limit is a row in credit_commands. Its state is open, then done, refused
 * or withdrawn. A running gateway may hold money in memory, so only the gateway may finish the order. If no gateway
 * runs, this process finishes it. Both claim the row in the transaction that carries out the order, so the order is
 * carried out once. Only this process withdraws the order, after its timeout.
 */

interface AdjustmentRequest {
  /** Id of the order. A new id if absent. */
  readonly orderId?: string;
  readonly organizationId: string;
  /** A negative amount reduces the balance, at most by the part that is not held. */
  readonly amountNano: NanoUsd;
  readonly description: string;
}

/** How long a command waits for a running gateway. */
export interface WaitOptions {
  readonly timeoutMs: number;
  /** Ends the wait early. */
  readonly interrupted: AbortSignal;
}

const MAX_BIGINT = 2n ** 63n - 1n;

/**
 * Posts an adjustment, with or without a running gateway. Throws insufficient_credits and organization_not_found. If
 * the order was not carried out in time, throws an Error with its state.
 */
export async function adjustCredit(
  sql: Database,
  request: AdjustmentRequest,
  waitOptions: WaitOptions,
): Promise<PostedEntry> {
  const { creditNano } = await requireOrganization(sql, request.organizationId);
  if (creditNano + request.amountNano > MAX_BIGINT) {
    throw new Error("the balance would exceed the largest amount: nothing was posted");
  }
  const { orderId: id = newId("cmd"), ...order } = request;
  const command = { ...order, kind: "adjustment", id } as const;
  const outcome = await carryOutOrder(
    sql,
    { ...command, transactionId: newId("txn") },
    waitOptions,
  );
  return postedEntry(sql, request, outcome);
}

interface CreditLimitRequest {
  readonly organizationId: string;
  /** Null means no limit. */
  readonly creditLimitNano: NanoUsd | null;
}

/** Changes how far the balance may go below zero. Works and throws like adjustCredit. */
export async function orderCreditLimit(
  sql: Database,
  request: CreditLimitRequest,
  waitOptions: WaitOptions,
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
    waitOptions,
  );
  if (!isRefused) return;
  throw new GatewayError(
    "insufficient_credits",
    `The balance is ${usdText(creditNano - postedNano)} USD, and running requests may hold a part of it: the used and held amounts exceed the new credit limit.`,
  );
}

async function carryOutOrder(
  sql: Database,
  command: CreditCommand,
  waitOptions: WaitOptions,
): Promise<CreditCommandOutcome> {
  try {
    await sql.begin(async (transaction) => {
      await insertCreditCommand(transaction, command);
      await finishWithoutGateway(transaction, command);
    });
    return await awaitOutcome(sql, command, waitOptions);
  } catch (error) {
    if (!isConnectionFailure(error)) throw error;
    throw new Error(
      `the connection to the database broke: order ${command.id} may have been carried out, or may still be carried out. Check the organization before you repeat the order`,
      { cause: error },
    );
  }
}

/** Finishes an open order if no gateway runs. Otherwise does nothing. */
async function finishWithoutGateway(
  sql: DatabaseTransaction,
  command: CreditCommand,
): Promise<void> {
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
  { timeoutMs, interrupted }: WaitOptions,
): Promise<CreditCommandOutcome> {
  let outcome: CreditCommandOutcome | undefined;
  const isDone = async (): Promise<boolean> => {
    outcome = await creditCommandOutcome(command.id).run(sql);
    if (outcome?.isDone === true) return true;
    // The gateway may have stopped since its last heartbeat.
    await sql.begin((transaction) => finishWithoutGateway(transaction, command));
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
      ? "interrupted: the order was withdrawn, nothing was changed"
      : `the running gateway did not carry out the order within ${timeoutMs / 1000} s: the order was withdrawn, nothing was changed`,
  );
}

/** Tries again while the database is unreachable, because it may answer before the timeout. */
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
      `The balance is ${usdText(creditNano - postedNano)} USD, and running requests may hold a part of it: ${usdText(-amountNano)} USD cannot be deducted.`,
    );
  }
  const entry = await findCreditEntry(sql, organizationId, transactionId);
  if (entry === undefined) throw new Error(`transaction ${transactionId} was not found`);
  return entry;
}
