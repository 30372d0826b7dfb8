import type { Database, DatabaseTransaction } from "../client.ts";
import { keepResponses } from "../queries/responses.ts";
import type { StoredResponse } from "./effects.ts";
import type {
  AccountHeadroom,
  AccountTotals,
  Checkpoint,
  HoldDemand,
  HoldRelease,
  HoldVerdict,
  RequestAccounts,
  Settlement,
} from "./rows.ts";
import {
  checkpointRow,
  commitLedgerBatch,
  type InstanceIdentity,
  newAccountRow,
} from "./settle-batch.ts";
import { settlementRows } from "./settlement-rows.ts";

export interface ExchangeBatch {
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  readonly releases: readonly HoldRelease[];
  readonly holds: readonly HoldDemand[];
  /** Responses that these settlements make visible. */
  readonly responses?: readonly StoredResponse[];
  readonly knownAccounts: ReadonlySet<string>;
  /**
   * True if the outcome of an earlier try is unknown. That try must have ended: see endEarlierSession.
   */
  readonly recheck: boolean;
  /** True if the settlements belong to dead instances. A single-node instance had its holds in memory. */
  readonly isReaping?: boolean;
}

export interface ExchangeOutcome {
  readonly accountIds: readonly string[];
  readonly verdicts: ReadonlyMap<string, HoldVerdict>;
}

type HeadroomRow = [limit: string | null, unspent: string | null, free: string | null];

/** Why a hold was not granted in full; see ledger_exchange_batch. */
interface VerdictRow {
  readonly request_id: string;
  readonly held_nano?: string;
  readonly budget_nano?: string;
  readonly blocked?: "key" | "subject";
  readonly gone?: true;
  readonly is_active?: boolean | null;
  readonly organization?: HeadroomRow;
  readonly day?: HeadroomRow;
  readonly month?: HeadroomRow;
  readonly subjects?: readonly HeadroomRow[];
}

/**
 * Ends holds, decides new ones, stores checkpoints and posts charges in one statement and one round trip (function
 * ledger_exchange_batch). Throws with SQLSTATE GW001 if the instance was declared dead, with GW002, a fault of the
 * program, if a charge is larger than its hold, and with RESPONSE_LOST if a stored response does not exist.
 */
export async function exchangeLedgerBatch(
  sql: Database | DatabaseTransaction,
  instance: InstanceIdentity,
  batch: ExchangeBatch,
): Promise<ExchangeOutcome> {
  const positions = new Positions(batch.knownAccounts);
  const json = batchJson(instance, batch, positions);
  const { responses = [] } = batch;
  const [row] =
    responses.length === 0
      ? await sql<{ verdicts: VerdictRow[] }[]>`
          SELECT ledger_exchange_batch(${json}::text::jsonb) AS verdicts`
      : await sql<{ verdicts: VerdictRow[] }[]>`
          WITH posted AS MATERIALIZED (SELECT ledger_exchange_batch(${json}::text::jsonb) AS verdicts)
          SELECT verdicts, ${keepResponses(sql, responses)} FROM posted`;
  return {
    accountIds: [...positions.byId.keys()],
    verdicts: verdictsOf(batch.holds, row!.verdicts),
  };
}

/**
 * Positions of a request's accounts: organization, day and month, then the accounts of subjects.
 */
type AccountPositions = readonly number[];

/** The accounts of a batch and their positions in it, from 1. */
class Positions {
  readonly byId = new Map<string, number>();
  readonly fresh = new Map<string, Record<string, unknown>>();
  hasSubjects = false;
  readonly #known: ReadonlySet<string>;

  constructor(known: ReadonlySet<string>) {
    this.#known = known;
  }

  of(accounts: RequestAccounts): AccountPositions {
    const positions = [
      this.#add(accounts.orgAccount),
      this.#add(accounts.dayAccount),
      this.#add(accounts.monthAccount),
    ];
    if (accounts.subjectAccounts === undefined) return positions;
    this.hasSubjects = true;
    for (const id of accounts.subjectAccounts) positions.push(this.#add(id));
    return positions;
  }

  /** Returns the positions of a request's accounts. Periods that may not have a row yet get one. */
  withRows(
    of: RequestAccounts & { readonly organizationId: string; readonly keyId: string },
  ): AccountPositions {
    this.#prepare(of.dayAccount, of);
    this.#prepare(of.monthAccount, of);
    if (of.subjectAccounts !== undefined) {
      for (const id of of.subjectAccounts) this.#prepare(id, of);
    }
    return this.of(of);
  }

  #prepare(id: string, of: { readonly organizationId: string; readonly keyId: string }): void {
    if (this.#known.has(id) || this.fresh.has(id)) return;
    this.fresh.set(id, newAccountRow(id, of));
  }

  /** Returns the position of an account of the batch. */
  positionOf(id: string): number {
    return this.byId.get(id)!;
  }

  #add(id: string): number {
    let position = this.byId.get(id);
    if (position === undefined) {
      position = this.byId.size + 1;
      this.byId.set(id, position);
    }
    return position;
  }
}

function batchJson(instance: InstanceIdentity, batch: ExchangeBatch, positions: Positions): string {
  const { checkpoints, settlements, releases, holds, recheck } = batch;
  const ended: Record<string, unknown>[] = [];
  const end = (
    of: RequestAccounts & { readonly requestId: string },
    charge?: bigint,
    budget?: bigint,
  ): void => {
    ended.push({
      position: ended.length + 1,
      request_id: of.requestId,
      accounts: positions.of(of),
      charge_nano: charge?.toString(),
      budget_nano: budget?.toString(),
    });
  };
  const attempts: string[] = [];
  for (const settlement of settlements) {
    const { requestId, hasAttempt, chargeNano, budgetNano } = settlement;
    end(settlement, chargeNano, budgetNano);
    if (hasAttempt || recheck) attempts.push(requestId);
  }
  for (const release of releases) {
    end(release);
    if (release.hasAttempt) attempts.push(release.requestId);
  }
  const rows = holds.map((demand) => holdRow(demand, positions.withRows(demand)));
  // A hold that an earlier try has placed is decided again. An extension finds the state that the try has left.
  if (recheck) for (const demand of holds) if (demand.extends !== true) end(demand);
  const posted = settlements.length === 0 ? undefined : postingRows(settlements, positions);
  return JSON.stringify({
    instance: instance.id,
    epoch: instance.epoch.toString(),
    account_ids: [...positions.byId.keys()],
    new_accounts: positions.fresh.size === 0 ? undefined : [...positions.fresh.values()],
    ended: ended.length === 0 ? undefined : ended,
    attempts: attempts.length === 0 ? undefined : attempts,
    checkpoints: checkpoints.length === 0 ? undefined : checkpoints.map(checkpointRow),
    holds: rows.length === 0 ? undefined : rows,
    ...posted,
    subjects: positions.hasSubjects || undefined,
    recheck: recheck || undefined,
    reaping: batch.isReaping || undefined,
  });
}

function postingRows(
  settlements: readonly Settlement[],
  positions: Positions,
): ReturnType<typeof settlementRows> {
  for (const settlement of settlements) positions.withRows(settlement);
  return settlementRows(settlements, positions);
}

/** Absent members are null. */
function holdRow(demand: HoldDemand, accounts: AccountPositions): Record<string, unknown> {
  const row: Record<string, unknown> = {
    request_id: demand.requestId,
    accounts,
    full_nano: demand.fullNano.toString(),
    least_nano: demand.leastNano.toString(),
  };
  if (demand.mostNano < demand.fullNano) row.most_nano = demand.mostNano.toString();
  const { budget } = demand;
  if (budget !== undefined) {
    row.budget_full_nano = budget.fullNano.toString();
    row.budget_least_nano = budget.leastNano.toString();
    row.budget_most_nano = budget.mostNano.toString();
  }
  if (demand.manner === "last") row.is_last = true;
  if (demand.extends === true) row.extends = true;
  return row;
}

function verdictsOf(
  holds: readonly HoldDemand[],
  rows: readonly VerdictRow[],
): Map<string, HoldVerdict> {
  const verdicts = new Map<string, HoldVerdict>();
  for (const { requestId, fullNano, budget } of holds) {
    const budgetNano = budget?.fullNano ?? fullNano;
    verdicts.set(requestId, { kind: "granted", holdNano: fullNano, budgetNano });
  }
  for (const row of rows) verdicts.set(row.request_id, verdictOf(row));
  return verdicts;
}

function verdictOf(row: VerdictRow): HoldVerdict {
  if (row.blocked !== undefined) return { kind: "blocked", of: row.blocked };
  if (row.gone) return { kind: "gone" };
  if (row.held_nano !== undefined) {
    const holdNano = BigInt(row.held_nano);
    return { kind: "granted", holdNano, budgetNano: BigInt(row.budget_nano!) };
  }
  if (row.organization === undefined) {
    return { kind: "revoked", isActive: row.is_active === false ? false : undefined };
  }
  return {
    kind: "short",
    organization: headroomOf(row.organization),
    day: headroomOf(row.day!),
    month: headroomOf(row.month!),
    subjects: (row.subjects ?? []).map(headroomOf),
  };
}

function headroomOf([limit, unspent, free]: HeadroomRow): AccountHeadroom | undefined {
  if (limit === null) return undefined;
  return {
    limitNano: BigInt(limit),
    remainingNano: BigInt(unspent!),
    availableNano: BigInt(free!),
  };
}

export interface CommittedBatch {
  /** Accounts that have a row now. */
  readonly accountIds: Iterable<string>;
  /** Totals of the accounts of settlements, if holds are in memory. */
  readonly totals: ReadonlyMap<string, AccountTotals>;
  readonly verdicts: ReadonlyMap<string, HoldVerdict>;
}

/** Writes a batch as a whole. */
export type CommitBatch = (
  sql: Database | DatabaseTransaction,
  instance: InstanceIdentity,
  batch: ExchangeBatch,
) => Promise<CommittedBatch>;

const NO_TOTALS: ReadonlyMap<string, AccountTotals> = new Map();
const NO_VERDICTS: ReadonlyMap<string, HoldVerdict> = new Map();

/**
 * Commits a batch of a single-node gateway: holds are in its memory, and the ledger stores checkpoints and charges.
 */
export const commitInMemoryHolds: CommitBatch = (sql, instance, batch) =>
  commitLedgerBatch(sql, instance, batch).then(withoutVerdicts);

function withoutVerdicts(totals: ReadonlyMap<string, AccountTotals>): CommittedBatch {
  return { accountIds: totals.keys(), totals, verdicts: NO_VERDICTS };
}

/** Commits a batch of a clustered gateway: holds are rows of the database. */
export const commitSharedHolds: CommitBatch = async (sql, instance, batch) => {
  const { accountIds, verdicts } = await exchangeLedgerBatch(sql, instance, batch);
  return { accountIds, totals: NO_TOTALS, verdicts };
};
