import { administrationStatements } from "./administration-statements.ts";
import { instanceStatements } from "./instance-statements.ts";
import { ledgerStatements } from "./ledger-statements.ts";
import type { ModelContext } from "./model-context.ts";
import type { Outcome, Session, Statement } from "./session.ts";
import type { TaggedStatement } from "./statement-text.ts";
import type { Running, Transaction } from "./transaction.ts";

// biome-ignore lint/suspicious/noExplicitAny: values of statements are of every type
type Values = readonly any[];

/** How the model carries out the statements whose text begins as `begins` says. */
export interface ModelledStatement {
  readonly name: string;
  readonly begins: string;
  readonly isLedgerBatch?: boolean;
  readonly isRefusable?: boolean;
  /** What may have to wait for others. */
  run?(
    context: ModelContext,
    transaction: Transaction,
    values: Values,
    session: Session,
  ): Running<Outcome>;
  /** What never waits. */
  look?(context: ModelContext, transaction: Transaction, values: Values, session: Session): Outcome;
}

const STATEMENTS: readonly ModelledStatement[] = [
  ...ledgerStatements,
  ...instanceStatements,
  ...administrationStatements,
];
const known = new Map<string, ModelledStatement>();

/** Undefined where the model does not know the statement: it has to be taught before it can be simulated. */
export function modelledStatement(
  context: ModelContext,
  { text, values }: TaggedStatement,
): Statement | undefined {
  let modelled = known.get(text);
  if (modelled === undefined) {
    modelled = STATEMENTS.find(({ begins }) => text.startsWith(begins));
    if (modelled === undefined) return undefined;
    known.set(text, modelled);
  }
  const { name, isLedgerBatch = false, isRefusable = isLedgerBatch, run, look } = modelled;
  return {
    name,
    isLedgerBatch,
    isRefusable,
    *run(session, transaction) {
      if (run !== undefined) return yield* run(context, transaction, values, session);
      return look!(context, transaction, values, session);
    },
  };
}
