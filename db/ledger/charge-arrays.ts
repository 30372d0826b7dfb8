import { integerArray, textArray } from "./array-text.ts";
import type { ChargedAccounts } from "./charged-accounts.ts";
import type { Settlement } from "./rows.ts";
import { groupSettlements } from "./settlement-groups.ts";

/** The charges of a batch as ledger_charge reads them, which tells what is in them: arrays, as texts. */
export interface ChargeArrays {
  readonly accounts: string;
  readonly sums: string;
  readonly requests: string;
  readonly figures: string;
  /** Null where no settlement has any. */
  readonly details: string | null;
  readonly groups: string;
  readonly groupFigures: string;
}

/** `accounts` are those of the settlements, and perhaps others that are to be told of. */
export function chargeArrays(
  settlements: readonly Settlement[],
  accounts: ChargedAccounts,
): ChargeArrays {
  const requests: string[] = [];
  const figures: (number | bigint)[] = [];
  let hasDetails = false;
  const firsts = groupSettlements(settlements, (settlement, group, place, chargeNano, sumNano) => {
    requests.push(settlement.requestId);
    figures.push(
      group + 1,
      place,
      chargeNano,
      sumNano,
      settlement.promptTokens,
      settlement.cachedPromptTokens,
      settlement.completionTokens,
      settlement.reasoningTokens,
      settlement.latencyMs,
    );
    hasDetails ||= settlement.details !== null;
  });
  return {
    ...accountArrays(accounts),
    requests: textArray(requests),
    figures: integerArray(figures),
    details: hasDetails ? textArray(settlements.map(detailsText)) : null,
    ...groupArrays(firsts, accounts),
  };
}

function accountArrays({ list }: ChargedAccounts): Pick<ChargeArrays, "accounts" | "sums"> {
  return {
    accounts: textArray(list.map(({ id }) => id)),
    sums: integerArray(list.flatMap(({ chargeNano, count }) => [chargeNano, count])),
  };
}

function groupArrays(
  firsts: readonly Settlement[],
  accounts: ChargedAccounts,
): Pick<ChargeArrays, "groups" | "groupFigures"> {
  return {
    groups: textArray(
      firsts.flatMap((of) => [of.organizationId, of.keyId, of.model, of.provider, of.description]),
    ),
    groupFigures: integerArray(
      firsts.flatMap((of) => [accounts.placeOf(of.orgAccount), of.status, of.estimated ? 1 : 0]),
    ),
  };
}

function detailsText({ details }: Settlement): string | null {
  return details === null ? null : JSON.stringify(details);
}
