/* The batches that the ledger sends, as db/ledger writes them; amounts are texts, or numbers where those are exact. */

export interface CheckpointRow {
  readonly request_id: string;
  readonly organization_id: string;
  readonly key_id: string;
  readonly org_account: string;
  readonly day_account: string;
  readonly month_account: string;
  readonly hold_nano: string;
  readonly charge_nano: string;
  readonly model: string;
  readonly provider: string;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly estimated: boolean;
  readonly latency_ms: number;
  readonly details?: Record<string, unknown>;
}

export interface GroupRow {
  readonly g: number;
  readonly o: number;
  readonly organization_id: string;
  readonly key_id: string;
  readonly description: string;
}

export interface SettlementRow {
  readonly n: number;
  readonly g: number;
  readonly r: string;
  readonly c: number | string;
  readonly t: number | string;
}

export interface ChargedAccountRow {
  readonly n: number;
  readonly id: string;
  readonly c: number | string;
  readonly q: number;
}

export interface NewAccountRow {
  readonly id: string;
  readonly kind: string;
  readonly organization_id: string;
  readonly key_id: string;
  readonly period_start: string;
}

export interface DemandRow {
  readonly r: string;
  readonly o: number;
  readonly d: number;
  readonly m: number;
  readonly f: string;
  readonly q: string;
  readonly w?: "last";
  readonly fx?: string;
  readonly pt?: string;
  readonly fee?: string;
  readonly x?: number;
}

export interface EndedRow {
  readonly n: number;
  readonly r: string;
  readonly o: number;
  readonly d: number;
  readonly m: number;
  readonly c?: string;
}

export interface BatchRows {
  readonly instance: string;
  readonly epoch: string;
  readonly account_ids?: readonly string[];
  readonly accounts?: readonly ChargedAccountRow[];
  readonly new_accounts?: readonly NewAccountRow[];
  readonly checkpoints?: readonly CheckpointRow[];
  readonly groups?: readonly GroupRow[];
  readonly settlements?: readonly SettlementRow[];
  readonly ended?: readonly EndedRow[];
  readonly attempts?: readonly string[];
  readonly holds?: readonly DemandRow[];
  readonly recheck?: true;
  readonly reaping?: true;
}

/** A settlement with what its group has in common. */
export interface Charge extends Omit<GroupRow, "g"> {
  readonly requestId: string;
  readonly chargeNano: bigint;
  /** Among the charges of its organization, from 1. */
  readonly place: number;
  /** Of these charges, up to this one. */
  readonly sumNano: bigint;
}

export function chargesOf(batch: BatchRows): Charge[] {
  const groups = new Map((batch.groups ?? []).map((group) => [group.g, group]));
  return [...(batch.settlements ?? [])]
    .sort((one, other) => one.n - other.n)
    .map((row) => ({
      ...groups.get(row.g)!,
      requestId: row.r,
      chargeNano: BigInt(row.c),
      place: row.n,
      sumNano: BigInt(row.t),
    }));
}
