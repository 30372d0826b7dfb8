import { orgAccountId } from "../../db/ledger/rows.ts";

/**
 * The state of one organization: its plan, and its balance, which can fall to minus its credit limit.
 *
 * The balance is credit minus spend, both as last reported by the ledger. Holds of requests are only in memory
 * and survive a reload. Holds that outlive processes come from the database. `sequence` numbers the account's
 * transactions: of two totals, the one with the higher number is newer.
 *
 * Each request changes the holds twice; all other data changes rarely. So the room for holds is recalculated only
 * when other data changes.
 */
export interface OrganizationFacts {
  readonly id: string;
  /** Undefined if the organization does not exist. */
  readonly record: OrganizationTerms | undefined;
  readonly creditNano: bigint;
  /** Amount by which the balance can go below zero. Null means no limit. */
  readonly creditLimitNano: bigint | null;
  readonly postedNano: bigint;
  readonly sequence: bigint;
  readonly heldNano: bigint;
  readonly longHeldNano: bigint;
}

export interface OrganizationTerms {
  readonly name: string;
  readonly plan: string;
  /** A custom fee. Undefined: the plan's fee applies. */
  readonly feeBasisPoints?: bigint | undefined;
}

export interface OrganizationState extends OrganizationFacts {
  readonly accountId: string;
  /** Most that requests can hold: balance plus credit limit minus long holds. */
  readonly roomNano: bigint;
}

/** The available amount without a credit limit: the largest number of the database. */
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

/** Sets the credit limit. The caller has checked that spend and holds stay within it. */
export function setCreditLimit(
  state: OrganizationState,
  creditLimitNano: bigint | null,
): OrganizationState {
  return organizationState({ ...state, creditLimitNano });
}

/** Returns the state with the hold, or undefined if too little is available. A hold of 0 always succeeds. */
export function hold(state: OrganizationState, holdNano: bigint): OrganizationState | undefined {
  if (holdNano === 0n) return state;
  const heldNano = state.heldNano + holdNano;
  return heldNano > state.roomNano ? undefined : withHeld(state, heldNano);
}

/** Changes the held amount by a positive or negative amount. */
export function changeHeld(state: OrganizationState, byNano: bigint): OrganizationState {
  return withHeld(state, state.heldNano + byNano);
}

/** Copies member by member for speed, because this runs for each request. */
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
