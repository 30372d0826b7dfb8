import type { Author } from "../src/lib/author.ts";
import type { Database, DatabaseTransaction } from "./client.ts";

type Work = (transaction: DatabaseTransaction) => unknown;

/**
 * The same database, whose transactions the audit log ascribes to the author: its triggers write an entry for each
 * administrative act, in the transaction of the act. What is written outside of a transaction has no author.
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

/** What the transaction does from here on; undefined: the gateway itself. */
export async function setAuthor(
  sql: DatabaseTransaction,
  author: Author | undefined,
): Promise<void> {
  const text = author === undefined ? "" : JSON.stringify(author);
  await sql`SELECT set_config('gateway.author', ${text}, true)`;
}
