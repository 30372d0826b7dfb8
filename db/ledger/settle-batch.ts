import { type ExactInteger, exact, plus } from "../../src/lib/exact-integer.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { keepResponses } from "../queries/responses.ts";
import type { StoredResponse } from "./effects.ts";
import {
  type AccountTotals,
  budgetOfAccount,
  type Checkpoint,
  isSamePayer,
  type Settlement,
} from "./rows.ts";
import { jsonInteger, settlementRows } from "./settlement-rows.ts";

export interface InstanceIdentity {
  readonly id: string;
  readonly epoch: bigint;
}

/** SQLSTATE with which the ledger rejects an instance that was declared dead. */
export const FENCED = "GW001";

export interface LedgerBatch {
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  /** Responses that these settlements make visible. */
  readonly responses?: readonly StoredResponse[];
  /** Accounts that are known to have a row. The others are created with the batch. */
  readonly knownAccounts: ReadonlySet<string>;
  /**
   * True if the outcome of an earlier try is unknown: the batch skips charges that are already posted.
   */
  readonly recheck: boolean;
}

/**
 * Commits a batch in one statement and one round trip (function ledger_settle_batch). Returns the totals of the
 * accounts it touched. Throws with SQLSTATE GW001 if the instance was declared dead, and with RESPONSE_LOST if a stored
 * response does not exist.
 */
export async function commitLedgerBatch(
  sql: Database | DatabaseTransaction,
  instance: InstanceIdentity,
  batch: LedgerBatch,
): Promise<Map<string, AccountTotals>> {
  for (;;) {
    const due = batch.recheck ? await withoutPosted(sql, batch.settlements) : batch.settlements;
    const accounts = new ChargedAccounts(batch.settlements, due);
    const json = batchJson(instance, batch, due, accounts);
    const totals = await settle(sql, json, batch.responses ?? []);
    // Null: another writer has posted a part of `due` since it was looked up.
    if (totals !== null) return totalsOf(accounts.list, totals);
  }
}

async function settle(
  sql: Database | DatabaseTransaction,
  json: string,
  responses: readonly StoredResponse[],
): Promise<string[] | null> {
  type Rows = { totals: string[] | null }[];
  const [row] =
    responses.length === 0
      ? await sql<Rows>`SELECT ledger_settle_batch(${json}::text::jsonb) AS totals`
      : await sql<Rows>`
          WITH posted AS MATERIALIZED (SELECT ledger_settle_batch(${json}::text::jsonb) AS totals)
          SELECT totals, CASE WHEN totals IS NOT NULL THEN ${keepResponses(sql, responses)} END FROM posted`;
  return row!.totals;
}

function totalsOf(
  accounts: readonly ChargedAccount[],
  figures: readonly string[],
): Map<string, AccountTotals> {
  const totals = new Map<string, AccountTotals>();
  let at = 0;
  for (const { id } of accounts) {
    totals.set(id, {
      creditNano: BigInt(figures[at]!),
      postedNano: BigInt(figures[at + 1]!),
      sequence: BigInt(figures[at + 2]!),
    });
    at += 3;
  }
  return totals;
}

/** Returns the settlements that no earlier try has posted. */
async function withoutPosted(
  sql: Database | DatabaseTransaction,
  settlements: readonly Settlement[],
): Promise<readonly Settlement[]> {
  if (settlements.length === 0) return settlements;
  const posted = await findPosted(
    sql,
    settlements.map(({ requestId }) => requestId),
  );
  return settlements.filter(({ requestId }) => !posted.has(requestId));
}

/**
 * Builds one parameter, because each parameter costs the driver as much as its content. Absent members are null.
 */
function batchJson(
  instance: InstanceIdentity,
  { checkpoints, settlements, knownAccounts, recheck }: LedgerBatch,
  due: readonly Settlement[],
  accounts: ChargedAccounts,
): string {
  const posted = due.length === 0 ? undefined : settlementRows(due, accounts);
  return JSON.stringify({
    instance: instance.id,
    epoch: instance.epoch.toString(),
    checkpoints: checkpoints.length === 0 ? undefined : checkpoints.map(checkpointRow),
    new_accounts: newAccountRows(accounts.list, knownAccounts),
    accounts: accounts.list.length === 0 ? undefined : accounts.list.map(accountRow),
    groups: posted?.groups,
    settlements: posted?.settlements,
    // An earlier try or another writer may have posted a charge without deleting its attempt.
    attempts: recheck ? attemptsOf(settlements, true) : attemptsOf(due, false),
    recheck: recheck || undefined,
  });
}

function attemptsOf(settlements: readonly Settlement[], isAny: boolean): string[] | undefined {
  let ended: string[] | undefined;
  for (const { requestId, hasAttempt } of settlements) {
    if (!isAny && !hasAttempt) continue;
    ended ??= [];
    ended.push(requestId);
  }
  return ended;
}

function accountRow({ id, position, chargeNano, count }: ChargedAccount) {
  return { place: position, id, charge_nano: jsonInteger(chargeNano), count };
}

function newAccountRows(
  accounts: readonly ChargedAccount[],
  known: ReadonlySet<string>,
): Record<string, unknown>[] | undefined {
  let rows: Record<string, unknown>[] | undefined;
  for (const { id, of } of accounts) {
    if (id === of.orgAccount || known.has(id)) continue;
    rows ??= [];
    rows.push(newAccountRow(id, of));
  }
  return rows;
}

/** Returns the row of a period's account. Its id says what it is. */
export function newAccountRow(
  id: string,
  { organizationId, keyId }: { readonly organizationId: string; readonly keyId: string },
): Record<string, unknown> {
  const kind = id.slice(0, id.indexOf(":"));
  return {
    id,
    kind,
    organization_id: organizationId,
    ...(isSubjectKind(kind) ? { budget_id: budgetOfAccount(id) } : { key_id: keyId }),
    period_start: id.slice(id.lastIndexOf(":") + 1),
  };
}

/** Creates the periods that have no row yet. */
export async function createAccounts(
  sql: DatabaseTransaction,
  ids: readonly string[],
  of: { readonly organizationId: string; readonly keyId: string },
): Promise<void> {
  const rows = JSON.stringify(ids.map((id) => newAccountRow(id, of)));
  await sql`SELECT ledger_create_accounts(${rows}::text::jsonb)`;
}

function isSubjectKind(kind: string): boolean {
  return kind !== "day" && kind !== "month";
}

export function checkpointRow(checkpoint: Checkpoint): Record<string, unknown> {
  return {
    request_id: checkpoint.requestId,
    organization_id: checkpoint.organizationId,
    key_id: checkpoint.keyId,
    org_account: checkpoint.orgAccount,
    day_account: checkpoint.dayAccount,
    month_account: checkpoint.monthAccount,
    subject_accounts: checkpoint.subjectAccounts,
    hold_nano: checkpoint.holdNano.toString(),
    charge_nano: checkpoint.chargeNano.toString(),
    budget_hold_nano: checkpoint.budgetHoldNano?.toString(),
    budget_charge_nano: checkpoint.budgetNano?.toString(),
    fee_nano: checkpoint.feeNano.toString(),
    model: checkpoint.model,
    provider: checkpoint.provider,
    prompt_tokens: checkpoint.promptTokens,
    cached_prompt_tokens: checkpoint.cachedPromptTokens,
    completion_tokens: checkpoint.completionTokens,
    reasoning_tokens: checkpoint.reasoningTokens,
    quantities: checkpoint.quantities ?? undefined,
    estimated: checkpoint.estimated,
    latency_ms: checkpoint.latencyMs,
    details: checkpoint.details ?? undefined,
    description: checkpoint.description,
    started_at: new Date(checkpoint.startedAtMs).toISOString(),
  };
}

/** Returns the ids of the requests that have a transaction. */
export async function findPosted(
  sql: Database | DatabaseTransaction,
  requestIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows = await sql<{ request_id: string }[]>`SELECT request_id FROM transactions
    WHERE request_id = ANY (${sql.array([...requestIds])}::text[])`;
  return new Set(rows.map((row) => row.request_id));
}

const NONE: readonly never[] = [];

interface ChargedAccount {
  readonly id: string;
  /** Position of the account in the batch, from 1. */
  readonly position: number;
  /** A settlement that touches the account. */
  readonly of: Settlement;
  chargeNano: ExactInteger;
  /** Number of transactions that the account gets. 0 for periods. */
  count: number;
}

/** The accounts that settlements touch, each once, with the sum of their due charges. */
class ChargedAccounts {
  readonly list: ChargedAccount[] = [];
  readonly #byId = new Map<string, ChargedAccount>();

  constructor(settlements: readonly Settlement[], due: readonly Settlement[]) {
    if (due !== settlements) for (const settlement of settlements) this.#touch(settlement);
    // Most settlements of a batch have the accounts of their neighbour.
    let last: Settlement | undefined;
    let chargeNano: ExactInteger = 0;
    let budgetNano: ExactInteger = 0;
    let count = 0;
    for (const settlement of due) {
      if (last !== undefined && !isSamePayer(last, settlement)) {
        this.#charge(last, chargeNano, budgetNano, count);
        chargeNano = 0;
        budgetNano = 0;
        count = 0;
      }
      last = settlement;
      const nano = exact(settlement.chargeNano);
      const { budgetNano: ofBudget } = settlement;
      chargeNano = plus(chargeNano, nano);
      budgetNano = plus(budgetNano, ofBudget === undefined ? nano : exact(ofBudget));
      count++;
      if (settlement.subjectAccounts !== undefined) this.#chargeSubjects(settlement);
    }
    if (last !== undefined) this.#charge(last, chargeNano, budgetNano, count);
  }

  positionOf(id: string): number {
    return this.#byId.get(id)!.position;
  }

  #touch(settlement: Settlement): void {
    this.#account(settlement.orgAccount, settlement);
    this.#account(settlement.dayAccount, settlement);
    this.#account(settlement.monthAccount, settlement);
    for (const id of settlement.subjectAccounts ?? NONE) this.#account(id, settlement);
  }

  #chargeSubjects(settlement: Settlement): void {
    const nano = exact(settlement.budgetNano ?? settlement.chargeNano);
    for (const id of settlement.subjectAccounts!) {
      const account = this.#account(id, settlement);
      account.chargeNano = plus(account.chargeNano, nano);
    }
  }

  #charge(
    settlement: Settlement,
    chargeNano: ExactInteger,
    budgetNano: ExactInteger,
    count: number,
  ): void {
    const organization = this.#account(settlement.orgAccount, settlement);
    const day = this.#account(settlement.dayAccount, settlement);
    const month = this.#account(settlement.monthAccount, settlement);
    organization.chargeNano = plus(organization.chargeNano, chargeNano);
    organization.count += count;
    day.chargeNano = plus(day.chargeNano, budgetNano);
    month.chargeNano = plus(month.chargeNano, budgetNano);
  }

  #account(id: string, of: Settlement): ChargedAccount {
    let account = this.#byId.get(id);
    if (account === undefined) {
      account = { id, position: this.list.length + 1, of, chargeNano: 0, count: 0 };
      this.list.push(account);
      this.#byId.set(id, account);
    }
    return account;
  }
}
