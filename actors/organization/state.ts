import { orgAccountId } from "../../db/ledger/rows.ts";

/**
 * Decisions of the actor of one organization: its plan and its prepaid balance.
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
  readonly record: { readonly name: string; readonly plan: string } | undefined;
  readonly creditNano: bigint;
  readonly postedNano: bigint;
  readonly sequence: bigint;
  readonly heldNano: bigint;
  readonly longHeldNano: bigint;
}

export interface OrganizationState extends OrganizationFacts {
  readonly accountId: string;
  /** What requests may hold at most: balance minus long holds. */
  readonly roomNano: bigint;
}

export interface BalanceTotals {
  readonly creditNano: bigint;
  readonly postedNano: bigint;
  readonly sequence: bigint;
}

export interface OrganizationHeadroom {
  readonly plan: string | undefined;
  /** Balance. */
  readonly unspentNano: bigint;
  /** Balance minus holds. */
  readonly freeNano: bigint;
}

export function organizationState(facts: OrganizationFacts): OrganizationState {
  const { id, record, creditNano, postedNano, sequence, heldNano, longHeldNano } = facts;
  const roomNano = creditNano - postedNano - longHeldNano;
  const accountId = orgAccountId(id);
  return {
    id,
    accountId,
    record,
    creditNano,
    postedNano,
    sequence,
    longHeldNano,
    roomNano,
    heldNano,
  };
}

export function headroom(state: OrganizationState): OrganizationHeadroom {
  return {
    plan: state.record?.plan,
    unspentNano: state.creditNano - state.postedNano,
    freeNano: state.roomNano - state.heldNano,
  };
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
