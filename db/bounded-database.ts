import type { Clock } from "../src/lib/clock.ts";
import { DeadlineQueue } from "../src/lib/deadlines.ts";
import { GatewayError, overloaded } from "../src/lib/errors.ts";
import { aroundQueries } from "./around-queries.ts";
import type { Database } from "./client.ts";

/**
 * Longest time for a query, in milliseconds. Together with a request's earlier wait for changes it is below two
 * seconds.
 */
export const QUERY_DEADLINE_MS = 1_500;
/**
 * Queries that run or wait for a connection. A query whose caller has given up counts until it ends.
 */
export const MAX_WAITING_QUERIES = 2_000;

/** The database did not answer in time. It is unknown whether it will still execute the query. */
export class DatabaseDeadlineError extends GatewayError {
  /** Resolves when the database has answered or failed. */
  readonly ended: Promise<void>;

  constructor(ended: Promise<void>) {
    super("database_unavailable", "The gateway's database does not answer.", {
      retryAfterSeconds: 1,
    });
    this.ended = ended;
  }
}

/**
 * Returns a database for requests with a waiting client. A query or transaction that takes too long rejects with 503.
 * If too many queries wait, further ones reject immediately. A transaction that has not begun when it rejects never
 * begins.
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
        if (isGivenUp) throw new Error("cancelled before it began");
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
