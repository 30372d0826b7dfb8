import type { Database, DatabaseTransaction } from "../client.ts";
import { checkpointRow, type InstanceIdentity, newAccountRow } from "./commit-batch.ts";
import type { AccountRoom, HoldDemand, HoldRelease, HoldVerdict } from "./hold-rows.ts";
import type { Checkpoint, RequestAccounts, Settlement } from "./rows.ts";
import { settlementRows } from "./settlement-rows.ts";

export interface ExchangeBatch {
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  readonly releases: readonly HoldRelease[];
  readonly holds: readonly HoldDemand[];
  readonly knownAccounts: ReadonlySet<string>;
  /** Set where an earlier try's outcome is unknown. That try must be over: see endEarlierSession. */
  readonly recheck: boolean;
  /** Set for what dead instances left: a single-node one has held in its memory. */
  readonly isReaping?: boolean;
}

export interface ExchangeOutcome {
  readonly accountIds: readonly string[];
  readonly verdicts: ReadonlyMap<string, HoldVerdict>;
}

type RoomRow = [limit: string | null, unspent: string | null, free: string | null];

interface VerdictRow {
  readonly r: string;
  /** Blocked by an earlier one. */
  readonly b?: true;
  /** Whether the key is active. */
  readonly a?: boolean | null;
  readonly h?: string;
  readonly t?: number;
  readonly o?: RoomRow;
  readonly d?: RoomRow;
  readonly m?: RoomRow;
}

/**
 * Ends holds, decides new ones, keeps checkpoints and posts charges in one statement and one round trip
 * (function ledger_exchange). Throws with SQLSTATE GW001 where the instance was declared dead, and with
 * GW002, a fault of the program, where a charge goes beyond its hold.
 */
export async function exchangeLedgerBatch(
  sql: Database | DatabaseTransaction,
  instance: InstanceIdentity,
  batch: ExchangeBatch,
): Promise<ExchangeOutcome> {
  const places = new Places(batch.knownAccounts);
  const json = batchJson(instance, batch, places);
  const [row] = await sql<{ outcome: { verdicts: VerdictRow[] } }[]>`
    SELECT ledger_exchange(${json}::text::jsonb) AS outcome`;
  return {
    accountIds: [...places.byId.keys()],
    verdicts: verdictsOf(batch.holds, row!.outcome.verdicts),
  };
}

/** The accounts of a batch and their places in it, from 1. */
class Places {
  readonly byId = new Map<string, number>();
  readonly fresh = new Map<string, Record<string, unknown>>();
  readonly #known: ReadonlySet<string>;

  constructor(known: ReadonlySet<string>) {
    this.#known = known;
  }

  of(accounts: RequestAccounts): { o: number; d: number; m: number } {
    return {
      o: this.#place(accounts.orgAccount),
      d: this.#place(accounts.dayAccount),
      m: this.#place(accounts.monthAccount),
    };
  }

  /** The same; periods that may not have a row yet get one. */
  withRows(
    of: RequestAccounts & { readonly organizationId: string; readonly keyId: string },
  ): ReturnType<Places["of"]> {
    for (const kind of ["day", "month"] as const) {
      const id = kind === "day" ? of.dayAccount : of.monthAccount;
      if (this.#known.has(id) || this.fresh.has(id)) continue;
      this.fresh.set(id, newAccountRow(id, kind, of));
    }
    return this.of(of);
  }

  /** Of an account that it has. */
  placeOf(id: string): number {
    return this.byId.get(id)!;
  }

  #place(id: string): number {
    let place = this.byId.get(id);
    if (place === undefined) {
      place = this.byId.size + 1;
      this.byId.set(id, place);
    }
    return place;
  }
}

function batchJson(instance: InstanceIdentity, batch: ExchangeBatch, places: Places): string {
  const { checkpoints, settlements, releases, holds, recheck } = batch;
  const ended: Record<string, unknown>[] = [];
  const end = (of: RequestAccounts & { readonly requestId: string }, charge?: bigint): void => {
    ended.push({ n: ended.length + 1, r: of.requestId, ...places.of(of), c: charge?.toString() });
  };
  const attempts: string[] = [];
  for (const settlement of settlements) {
    const { requestId, hasAttempt, chargeNano } = settlement;
    end(settlement, chargeNano);
    if (hasAttempt || recheck) attempts.push(requestId);
  }
  for (const release of releases) {
    end(release);
    if (release.hasAttempt) attempts.push(release.requestId);
  }
  const rows = holds.map((demand) => holdRow(demand, places.withRows(demand)));
  if (recheck) for (const demand of holds) end(demand);
  const posted = settlements.length === 0 ? undefined : postingRows(settlements, places);
  return JSON.stringify({
    instance: instance.id,
    epoch: instance.epoch.toString(),
    account_ids: [...places.byId.keys()],
    new_accounts: places.fresh.size === 0 ? undefined : [...places.fresh.values()],
    ended: ended.length === 0 ? undefined : ended,
    attempts: attempts.length === 0 ? undefined : attempts,
    checkpoints: checkpoints.length === 0 ? undefined : checkpoints.map(checkpointRow),
    holds: rows.length === 0 ? undefined : rows,
    ...posted,
    recheck: recheck || undefined,
    reaping: batch.isReaping || undefined,
  });
}

function postingRows(
  settlements: readonly Settlement[],
  places: Places,
): ReturnType<typeof settlementRows> {
  for (const settlement of settlements) places.withRows(settlement);
  return settlementRows(settlements, places);
}

/** Members that are absent are null; see ledger_exchange for their names. */
function holdRow(demand: HoldDemand, places: ReturnType<Places["of"]>): Record<string, unknown> {
  const { lowering, manner } = demand;
  const row: Record<string, unknown> = {
    r: demand.requestId,
    ...places,
    f: demand.fullNano.toString(),
    q: demand.leastNano.toString(),
  };
  if (manner !== "waiting") row.w = manner;
  if (lowering !== undefined) {
    row.fx = lowering.fixedFemto.toString();
    row.pt = lowering.perTokenFemto.toString();
    row.fee = lowering.feeBasisPoints.toString();
    row.x = lowering.maxTokens;
  }
  return row;
}

function verdictsOf(
  holds: readonly HoldDemand[],
  rows: readonly VerdictRow[],
): Map<string, HoldVerdict> {
  const verdicts = new Map<string, HoldVerdict>();
  for (const { requestId, fullNano } of holds) {
    verdicts.set(requestId, { kind: "granted", holdNano: fullNano });
  }
  for (const row of rows) verdicts.set(row.r, verdictOf(row));
  return verdicts;
}

function verdictOf(row: VerdictRow): HoldVerdict {
  if (row.b) return { kind: "behind" };
  if (row.h !== undefined) {
    return { kind: "granted", holdNano: BigInt(row.h), outputTokens: row.t! };
  }
  if (row.o === undefined) {
    return { kind: "revoked", isActive: row.a === false ? false : undefined };
  }
  return {
    kind: "short",
    organization: roomOf(row.o),
    day: roomOf(row.d!),
    month: roomOf(row.m!),
  };
}

function roomOf([limit, unspent, free]: RoomRow): AccountRoom | undefined {
  if (limit === null) return undefined;
  return {
    limitNano: BigInt(limit),
    unspentNano: BigInt(unspent!),
    freeNano: BigInt(free!),
  };
}
