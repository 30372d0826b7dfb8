import type { Database, DatabaseTransaction } from "../../db/client.ts";
import type { ModelContext } from "./postgres/model-context.ts";
import type { Session } from "./postgres/session.ts";
import { Listed, statementText } from "./postgres/statement-text.ts";
import { modelledStatement } from "./postgres/statements.ts";
import { type Change, Transaction } from "./postgres/transaction.ts";

/** The model behind the driver's tag, one statement after another, without a world around it. */
export function directDatabase(
  context: ModelContext,
  onCommit: (changes: readonly Change[]) => void = () => {},
): Database {
  const carryOut = (text: string, values: readonly unknown[], transaction: Transaction) => {
    const statement = modelledStatement(context, { text, values });
    if (statement === undefined) throw new Error(`the model does not know: ${text}`);
    const running = statement.run({} as Session, transaction);
    for (;;) {
      const step = running.next();
      if (step.done) return Object.assign([...step.value.rows], { count: step.value.count });
      if (typeof step.value === "object") throw new Error("nobody else is there to wait for");
    }
  };
  const tagOf = (send: (text: string, values: readonly unknown[]) => unknown) =>
    Object.assign(
      (strings: TemplateStringsArray | object, ...values: unknown[]): unknown => {
        if (!Object.hasOwn(strings, "raw")) return new Listed(strings);
        return Promise.try(() => send(statementText(strings as TemplateStringsArray), values));
      },
      { array: (of: unknown) => new Listed(of) },
    );
  const within = async <Result>(work: (transaction: Transaction) => Result | Promise<Result>) => {
    const transaction = new Transaction();
    try {
      const result = await work(transaction);
      onCommit(transaction.commit());
      return result;
    } catch (error) {
      transaction.rollBack();
      throw error;
    }
  };
  const tag = tagOf((text, values) => within((transaction) => carryOut(text, values, transaction)));
  return Object.assign(tag, {
    begin: <Result>(work: (sql: DatabaseTransaction) => Promise<Result>) =>
      within((transaction) =>
        work(
          tagOf((text, values) =>
            carryOut(text, values, transaction),
          ) as unknown as DatabaseTransaction,
        ),
      ),
  }) as unknown as Database;
}
