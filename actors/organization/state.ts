/**
 * Decisions of the actor of one organization: its plan and its prepaid balance.
 *
 * The balance is credit minus spend, both as the ledger last told them; holds of requests live in this
 * memory alone and survive a reload, those that outlive processes come from the database. `sequence` numbers the account's transactions: of two totals the one with the
 * higher number is the newer.
 */
export interface OrganizationState {
  readonly id: string;
  /** Undefined where there is no such organization. */
  readonly record: { readonly name: string; readonly plan: string } | undefined;
  readonly creditNano: bigint;
  readonly postedNano: bigint;
  readonly sequence: bigint;
  readonly heldNano: bigint;
  readonly longHeldNano: bigint;
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

export function headroom(state: OrganizationState): OrganizationHeadroom {
  const unspentNano = state.creditNano - state.postedNano;
  return {
    plan: state.record?.plan,
    unspentNano,
    freeNano: unspentNano - state.heldNano - state.longHeldNano,
  };
}

/** Adds to (or, negative, takes from) what is held. */
export function changeHeld(state: OrganizationState, byNano: bigint): OrganizationState {
  // Member by member, because it is done twice for each request.
  return {
    id: state.id,
    record: state.record,
    creditNano: state.creditNano,
    postedNano: state.postedNano,
    sequence: state.sequence,
    longHeldNano: state.longHeldNano,
    heldNano: state.heldNano + byNano,
  };
}

export function noteTotals(state: OrganizationState, totals: BalanceTotals): OrganizationState {
  return totals.sequence > state.sequence ? { ...state, ...totals } : state;
}

export function keepHolds(
  previous: OrganizationState,
  loaded: OrganizationState,
): OrganizationState {
  return noteTotals(
    { ...loaded, heldNano: previous.heldNano },
    {
      creditNano: previous.creditNano,
      postedNano: previous.postedNano,
      sequence: previous.sequence,
    },
  );
}
