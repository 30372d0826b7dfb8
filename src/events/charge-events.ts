import type { StatementEffect } from "../../db/ledger/effects.ts";
import type { Hold, SettlementFigures } from "../money/interface.ts";

/** The event that a charge is reported by, written with it. */
export interface ChargeEvents {
  /**
   * Undefined where nobody wants it.
   * @param errorCode set where the request failed although something of its answer is charged
   */
  ofCharge(
    hold: Hold,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): StatementEffect | undefined | Promise<StatementEffect | undefined>;
  /** A charge was written with its event. */
  noteWritten(): void;
}

/** Both written together; undefined where there is neither. */
export function bothEffects(
  first: StatementEffect | undefined,
  second: StatementEffect | undefined,
): StatementEffect | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  return {
    kind: "statement",
    name: `${first.name}, ${second.name}`,
    tables: [...first.tables, ...second.tables],
    events: [...first.events, ...second.events],
    async run(sql) {
      await first.run(sql);
      await second.run(sql);
    },
    keepsAnswer: () => first.keepsAnswer?.() === true || second.keepsAnswer?.() === true,
  };
}
