import type { Author } from "../src/lib/author.ts";
import type { Database, DatabaseTransaction } from "./client.ts";

type Work = (transaction: DatabaseTransaction) => unknown;

/**
 * Returns a database whose transactions have an author in the audit log. Triggers write an entry for each
 * administrative act, in the transaction of the act. Statements outside of a transaction have no author.
 */
export function authored(sql: Database, author: Author): Database {
  const begin = sql.begin as unknown as (...all: unknown[]) => Promise<unknown>;
  const members = {
    begin: (...parameters: [...unknown[], Work]) => {
      const work = parameters.at(-1) as Work;
      return begin(...parameters.slice(0, -1), async (transaction: DatabaseTransaction) => {
        await setAuthor(transaction, author);
        return work(transaction);
      });
    },
  };
  return new Proxy(sql, {
    get: (_, name) => (name === "begin" ? members.begin : Reflect.get(sql, name)),
  });
}

/** Sets the author of the transaction's later acts. Undefined means the gateway itself. */
export async function setAuthor(
  sql: DatabaseTransaction,
  author: Author | undefined,
): Promise<void> {
  const text = author === undefined ? "" : JSON.stringify(author);
  await sql`SELECT set_config('gateway.author', ${text}, true)`;
}
