import type { Clock } from "../src/lib/clock.ts";
import { DeadlineQueue } from "../src/lib/deadlines.ts";
import { GatewayError, overloaded } from "../src/lib/errors.ts";
import { aroundQueries } from "./around-queries.ts";
import type { Database } from "./client.ts";

/** With the wait for news of a request that came before it, this stays below two seconds. */
export const QUERY_DEADLINE_MS = 1_500;
/** Queries that are under way or wait for a connection; what their callers gave up counts until it ends. */
export const MAX_WAITING_QUERIES = 2_000;

/** The database did not answer in time: whether it will yet do what it was asked is not known. */
export class DatabaseDeadlineError extends GatewayError {
  /** Resolves when it has answered after all, or failed. */
  readonly ended: Promise<void>;

  constructor(ended: Promise<void>) {
    super("database_unavailable", "The gateway's database does not answer.", {
      retryAfterSeconds: 1,
    });
    this.ended = ended;
  }
}

/**
 * The same database for requests with a waiting client: a query, or a transaction,
 * that takes too long rejects with 503, and so does at once what comes while too many wait. A transaction
 * that has not begun by then never does.
 */
export function boundedDatabase(sql: Database, clock: Clock): Database {
  const watch = watcher(clock);
  return aroundQueries(() => sql, watch, {
    begin: (...parameters: [...unknown[], Work]) => boundedBegin(sql, parameters, watch),
  });
}

type Work = (transaction: unknown) => unknown;
type Watch = <Result>(run: () => Promise<Result>, giveUp?: () => void) => Promise<Result>;

function watcher(clock: Clock): Watch {
  const deadlines = new DeadlineQueue(clock, QUERY_DEADLINE_MS);
  let waiting = 0;
  return (run, giveUp) => {
    if (waiting >= MAX_WAITING_QUERIES) return Promise.reject(tooMany());
    waiting++;
    return new Promise((resolve, reject) => {
      const running = run();
      const ended = running.then(
        () => {},
        () => {},
      );
      const deadline = deadlines.add(() => {
        giveUp?.();
        reject(new DatabaseDeadlineError(ended));
      });
      void ended.then(() => {
        waiting--;
        deadline.cancel();
      });
      running.then(resolve, reject);
    });
  };
}

function boundedBegin(
  sql: Database,
  parameters: readonly [...unknown[], Work],
  watch: Watch,
): Promise<unknown> {
  const work = parameters.at(-1) as Work;
  let isGivenUp = false;
  const begin = sql.begin as unknown as (...all: unknown[]) => Promise<unknown>;
  return watch(
    () =>
      begin.call(sql, ...parameters.slice(0, -1), (transaction: unknown) => {
        if (isGivenUp) throw new Error("given up before it began");
        return work(transaction);
      }),
    () => {
      isGivenUp = true;
    },
  );
}

function tooMany(): GatewayError {
  return overloaded("Too many requests are waiting for the database.");
}
