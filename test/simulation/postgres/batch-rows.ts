import type { Quantities } from "../../../src/lib/usage.ts";
import type { Used } from "./tables.ts";

/* The batches that the ledger sends, as db/ledger writes them; amounts are texts, or numbers where those are exact. */

export interface CheckpointRow {
  readonly request_id: string;
  readonly organization_id: string;
  readonly key_id: string;
  readonly org_account: string;
  readonly day_account: string;
  readonly month_account: string;
  readonly subject_accounts?: readonly string[];
  readonly hold_nano: string;
  readonly charge_nano: string;
  readonly budget_hold_nano?: string;
  readonly budget_charge_nano?: string;
  readonly fee_nano?: string;
  readonly model: string;
  readonly provider: string;
  readonly prompt_tokens: number;
  readonly cached_prompt_tokens: number;
  readonly completion_tokens: number;
  readonly reasoning_tokens: number;
  readonly quantities?: Quantities;
  readonly estimated: boolean;
  readonly latency_ms: number;
  readonly details?: Record<string, unknown>;
  readonly description: string;
}

export interface GroupRow {
  readonly group: number;
  readonly account: number;
  readonly organization_id: string;
  readonly key_id: string;
  readonly description: string;
}

export interface SettlementRow {
  readonly position: number;
  readonly group: number;
  readonly request_id: string;
  readonly charge_nano: number | string;
  readonly sum_nano: number | string;
  readonly budget_nano?: number | string;
  readonly fee_nano?: number | string;
  readonly prompt_tokens: number;
  readonly cached_prompt_tokens?: number;
  readonly completion_tokens: number;
  readonly reasoning_tokens?: number;
  readonly quantities?: Quantities;
}

export interface ChargedAccountRow {
  readonly place: number;
  readonly id: string;
  readonly charge_nano: number | string;
  readonly count: number;
}

export interface NewAccountRow {
  readonly id: string;
  readonly kind: string;
  readonly organization_id: string;
  readonly key_id?: string;
  readonly budget_id?: string;
  readonly period_start: string;
}

/** Of a request: organization, day, month and the accounts of subjects, as places in account_ids from 1. */
type AccountPlaces = readonly number[];

export interface DemandRow {
  readonly request_id: string;
  readonly accounts: AccountPlaces;
  readonly full_nano: string;
  readonly least_nano: string;
  readonly most_nano?: string;
  readonly budget_full_nano?: string;
  readonly budget_least_nano?: string;
  readonly budget_most_nano?: string;
  readonly is_last?: true;
  readonly extends?: true;
}

export interface EndedRow {
  readonly position: number;
  readonly request_id: string;
  readonly accounts: AccountPlaces;
  readonly charge_nano?: string;
  readonly budget_nano?: string;
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
  readonly subjects?: true;
  readonly recheck?: true;
  readonly reaping?: true;
}

/** A settlement with what its group has in common. */
export interface Charge extends Omit<GroupRow, "group">, Used {
  readonly requestId: string;
  readonly chargeNano: bigint;
  /** Among the charges of its organization, from 1. */
  readonly place: number;
  /** Of these charges, up to this one. */
  readonly sumNano: bigint;
}

export function chargesOf(batch: BatchRows): Charge[] {
  const groups = new Map((batch.groups ?? []).map((row) => [row.group, row]));
  return [...(batch.settlements ?? [])]
    .sort((one, other) => one.position - other.position)
    .map((row) => ({
      ...groups.get(row.group)!,
      requestId: row.request_id,
      chargeNano: BigInt(row.charge_nano),
      place: row.position,
      sumNano: BigInt(row.sum_nano),
      prompt_tokens: BigInt(row.prompt_tokens),
      cached_prompt_tokens: BigInt(row.cached_prompt_tokens ?? 0),
      completion_tokens: BigInt(row.completion_tokens),
      reasoning_tokens: BigInt(row.reasoning_tokens ?? 0),
      quantities: row.quantities ?? null,
      budget_nano: row.budget_nano === undefined ? null : BigInt(row.budget_nano),
      fee_nano: row.fee_nano === undefined ? null : BigInt(row.fee_nano),
    }));
}
