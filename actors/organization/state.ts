import { orgAccountId } from "../../db/ledger/rows.ts";

/**
 * Decisions of the actor of one organization: its plan, and its balance, which may go down to minus its
 * credit limit.
 *
 * The balance is credit minus spend, both as the ledger last told them; holds of requests live in this
 * memory alone and survive a reload, those that outlive processes come from the database. `sequence` numbers
 * the account's transactions: of two totals the one with the higher number is the newer.
 *
 * Holds of requests change twice for each, all else seldom: so the room that they have is reckoned when one
 * of the others changes.
 */
export interface OrganizationFacts {
  readonly id: string;
  /** Undefined where there is no such organization. */
  readonly record: OrganizationTerms | undefined;
  readonly creditNano: bigint;
  /** How far the balance may go below zero; null is without limit. */
  readonly creditLimitNano: bigint | null;
  readonly postedNano: bigint;
  readonly sequence: bigint;
  readonly heldNano: bigint;
  readonly longHeldNano: bigint;
}

export interface OrganizationTerms {
  readonly name: string;
  readonly plan: string;
  /** Undefined: the plan's. */
  readonly feeBasisPoints?: bigint | undefined;
}

export interface OrganizationState extends OrganizationFacts {
  readonly accountId: string;
  /** What requests may hold at most: balance plus credit limit minus long holds. */
  readonly roomNano: bigint;
}

/** What is free where there is no credit limit: as much as the database can count. */
export const UNLIMITED_NANO = 2n ** 63n - 1n;

export interface BalanceTotals {
  readonly creditNano: bigint;
  readonly postedNano: bigint;
  readonly sequence: bigint;
}

export interface OrganizationHeadroom {
  readonly plan: string | undefined;
  readonly creditLimitNano: bigint | null;
  /** Balance plus credit limit. */
  readonly remainingNano: bigint;
  /** Balance plus credit limit minus holds. */
  readonly availableNano: bigint;
  /** Balance minus holds, without the credit limit. */
  readonly unheldNano: bigint;
}

export function organizationState(facts: OrganizationFacts): OrganizationState {
  const { id, record, creditNano, creditLimitNano, postedNano } = facts;
  const { sequence, heldNano, longHeldNano } = facts;
  const roomNano = withCredit(creditNano - postedNano - longHeldNano, creditLimitNano);
  const accountId = orgAccountId(id);
  return {
    id,
    accountId,
    record,
    creditNano,
    creditLimitNano,
    postedNano,
    sequence,
    longHeldNano,
    roomNano,
    heldNano,
  };
}

export function headroom(state: OrganizationState): OrganizationHeadroom {
  const { creditLimitNano, heldNano, longHeldNano } = state;
  const balanceNano = state.creditNano - state.postedNano;
  return {
    plan: state.record?.plan,
    creditLimitNano,
    remainingNano: withCredit(balanceNano, creditLimitNano),
    availableNano: state.roomNano - heldNano,
    unheldNano: balanceNano - longHeldNano - heldNano,
  };
}

function withCredit(nano: bigint, creditLimitNano: bigint | null): bigint {
  return creditLimitNano === null ? UNLIMITED_NANO : nano + creditLimitNano;
}

/** The caller has checked that what is used and held stays within the limit. */
export function setCreditLimit(
  state: OrganizationState,
  creditLimitNano: bigint | null,
): OrganizationState {
  return organizationState({ ...state, creditLimitNano });
}

/** Undefined where there is not so much free. What costs nothing needs no money. */
export function hold(state: OrganizationState, holdNano: bigint): OrganizationState | undefined {
  if (holdNano === 0n) return state;
  const heldNano = state.heldNano + holdNano;
  return heldNano > state.roomNano ? undefined : withHeld(state, heldNano);
}

/** Adds to (or, negative, takes from) what is held. */
export function changeHeld(state: OrganizationState, byNano: bigint): OrganizationState {
  return withHeld(state, state.heldNano + byNano);
}

/** Member by member, because it is done for each request. */
function withHeld(state: OrganizationState, heldNano: bigint): OrganizationState {
  return {
    id: state.id,
    accountId: state.accountId,
    record: state.record,
    creditNano: state.creditNano,
    creditLimitNano: state.creditLimitNano,
    postedNano: state.postedNano,
    sequence: state.sequence,
    longHeldNano: state.longHeldNano,
    roomNano: state.roomNano,
    heldNano,
  };
}

export function noteTotals(state: OrganizationState, totals: BalanceTotals): OrganizationState {
  if (totals.sequence <= state.sequence) return state;
  const { creditNano, postedNano, sequence } = totals;
  return organizationState({ ...state, creditNano, postedNano, sequence });
}

export function keepHolds(
  previous: OrganizationState,
  loaded: OrganizationState,
): OrganizationState {
  return noteTotals({ ...loaded, heldNano: previous.heldNano }, previous);
}
