import {
  type Database,
  type DatabaseTransaction,
  isConnectionFailure,
} from "../../../db/client.ts";
import { waitUntil } from "../../../db/embedded/wait.ts";
import {
  adjustCreditEffect,
  type CreditCommand,
  type CreditCommandOutcome,
  creditCommandOutcome,
  insertCreditCommand,
  refuseCommandEffect,
  withdrawCreditCommand,
} from "../../../db/queries/credit-commands.ts";
import { findCreditEntry, type PostedEntry } from "../../../db/queries/credit-entry-find.ts";
import { claimRest, freeNanoAtRest } from "../../../db/queries/database-at-rest.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { type NanoUsd, usdText } from "../../lib/money.ts";
import { requireOrganization } from "./organizations.ts";

/*
 * An order on a balance, a row in credit_commands, is open, then done or refused, or withdrawn. A running
 * gateway holds money in its memory, so it alone may finish an order; where none runs, this process does.
 * Both claim the row in the transaction that posts, so an order is carried out once. Only this process
 * withdraws it, when its time is up.
 */

export interface AdjustmentRequest {
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
  const command: CreditCommand = { ...request, id: newId("cmd"), transactionId: newId("txn") };
  try {
    await sql.begin(async (transaction) => {
      await insertCreditCommand(transaction, command);
      await carryOutAtRest(transaction, command);
    });
    const outcome = await awaitOutcome(sql, command, patience);
    return await postedEntry(sql, command, outcome);
  } catch (error) {
    if (!isConnectionFailure(error)) throw error;
    throw new Error(
      `the connection to the database broke, so it is not known whether order ${command.id} was or will be carried out: look at the organization's transactions before you give it again`,
      { cause: error },
    );
  }
}

/** Finishes an open order where no gateway runs; otherwise does nothing. */
async function carryOutAtRest(sql: DatabaseTransaction, command: CreditCommand): Promise<void> {
  if (!(await claimRest(sql))) return;
  const takenNano = -command.amountNano;
  const isCovered =
    takenNano <= 0n || takenNano <= (await freeNanoAtRest(sql, command.organizationId));
  const effect = isCovered ? adjustCreditEffect(command) : refuseCommandEffect(command);
  await effect.run(sql);
}

async function awaitOutcome(
  sql: Database,
  command: CreditCommand,
  { timeoutMs, interrupted }: Patience,
): Promise<CreditCommandOutcome> {
  let outcome: CreditCommandOutcome | undefined;
  const isDone = async (): Promise<boolean> => {
    outcome = await creditCommandOutcome(sql, command.id);
    if (outcome?.isDone === true) return true;
    // The gateway that was heard of may have stopped since.
    await sql.begin((transaction) => carryOutAtRest(transaction, command));
    return interrupted.aborted;
  };
  await waitUntil(() => isDone().catch(unlessUnreachable), timeoutMs);
  if (outcome?.isDone === true) return outcome;
  if (!(await withdrawCreditCommand(sql, command.id))) {
    outcome = await creditCommandOutcome(sql, command.id);
    if (outcome?.isDone === true) return outcome;
  }
  throw new Error(
    interrupted.aborted
      ? "interrupted: the order was withdrawn, and nothing was posted"
      : `the running gateway did not carry the order out within ${timeoutMs / 1000} s: it was withdrawn, and nothing was posted`,
  );
}

/** While the database is out of reach nothing is known, and it may come back in time. */
function unlessUnreachable(error: unknown): boolean {
  if (!isConnectionFailure(error)) throw error;
  return false;
}

async function postedEntry(
  sql: Database,
  { organizationId, amountNano }: CreditCommand,
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
