import { afterAll, beforeAll } from "bun:test";
import { describeChanges } from "./money/changes.ts";
import { describeCreditLimits } from "./money/credit-limits.ts";
import { describeEnds } from "./money/ends.ts";
import { describeExtensions } from "./money/extensions.ts";
import { describeFloods } from "./money/floods.ts";
import { describeHoldSizes } from "./money/hold-sizes.ts";
import { describeLongHolds } from "./money/long-holds.ts";
import { describeOwnBudgets } from "./money/own-budgets.ts";
import { MoneyHands, type OwnedMoney } from "./money/owned-money.ts";
import { describeRefusals } from "./money/refusals.ts";
import { describeSteps } from "./money/steps.ts";
import { describeSubjects } from "./money/subjects.ts";
import { describeUnableDatabase } from "./money/unable-database.ts";
import { describeWaiting } from "./money/waiting.ts";

/** What every implementation of the money port keeps. */
export function describeMoney(open: () => Promise<OwnedMoney>): void {
  const hands = new MoneyHands();
  beforeAll(async () => hands.take(await open()));
  afterAll(() => hands.owned.close());
  describeFloods(hands);
  describeHoldSizes(hands);
  describeWaiting(hands);
  describeRefusals(hands);
  describeEnds(hands);
  describeExtensions(hands);
  describeOwnBudgets(hands);
  describeSubjects(hands);
  describeUnableDatabase(hands);
  describeChanges(hands);
  describeLongHolds(hands);
  describeCreditLimits(hands);
  describeSteps(hands);
}
