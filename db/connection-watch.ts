import { aroundQueries } from "./around-queries.ts";
import { type ConnectionEvents, type Database, retryDelaySeconds } from "./client.ts";

/** A database whose connections can be replaced by new ones. */
export interface RenewableDatabase {
  /** The database over the current connections. */
  readonly sql: Database;
  /**
   * Start of each running query, by `performance.now()`. Not earlier than the last connection was opened, because the
   * query may have waited for it.
   */
  readonly underWay: readonly number[];
  /** Number of connections that are being opened. */
  readonly openingCount: number;
  /** True if a connection is open and can be used. */
  readonly isOpen: boolean;
  /**
   * Resolves when a connection is open. Rejects with the last try's error if none is open within that time.
   */
  whenOpen(withinMs: number): Promise<void>;
  /**
   * Replaces the connections without notifying the server, which may be unreachable. Running queries reject with
   * CONNECTION_DESTROYED; listeners move to the new connections and are notified. Does nothing if a connection was
   * opened within `minAgeMs`. A first connection that is still being opened stays until it times out: another one is
   * opened in addition, and the first open one is used. Returns true if connections were replaced.
   */
  renew(minAgeMs?: number): boolean;
}

type Listen = Parameters<Database["listen"]>;

/** A pool, and which of its connections are open. */
interface Opened {
  readonly sql: Database;
  readonly opening: Set<number>;
  readonly standing: Set<number>;
}

/** Largest number of additional pools that may connect while the first one connects. */
const MAX_RIVALS = 4;

/**
 * Returns a database that calls `open` for its first pool and for each later one. It keeps one connection open, so that
 * the first request after an outage does not wait for one.
 */
export function renewableDatabase(open: (events: ConnectionEvents) => Database): RenewableDatabase {
  const underWay = new Map<object, number>();
  const listening: Listen[] = [];
  const rivals: Opened[] = [];
  const openWaiters = new Set<() => void>();
  let lastOpenedAtMs = Number.NEGATIVE_INFINITY;
  let lastFailure: unknown;
  let isEnded = false;

  const openOne = (): Opened => {
    const opening = new Set<number>();
    const standing = new Set<number>();
    const opened: Opened = {
      sql: open({
        onOpening: (id) => void opening.add(id),
        onOpened(id) {
          opening.delete(id);
          standing.add(id);
          noteOpened(opened);
        },
        onClosed(id) {
          opening.delete(id);
          if (standing.delete(id) && standing.size === 0) void keepOpen(opened);
        },
      }),
      opening,
      standing,
    };
    return opened;
  };
  const noteOpened = (opened: Opened): void => {
    if (opened !== current) return;
    lastOpenedAtMs = performance.now();
    for (const rival of rivals.splice(0)) end(rival);
    for (const resolve of openWaiters) resolve();
    openWaiters.clear();
  };
  const keepOpen = async (opened: Opened): Promise<void> => {
    for (let failures = 0; opened === current && !isEnded; ) {
      try {
        await opened.sql`SELECT 1`;
        return;
      } catch (error) {
        lastFailure = error;
        await Bun.sleep(retryDelaySeconds(++failures) * 1_000);
      }
    }
  };
  const end = (opened: Opened): void => {
    // Does not wait for the end: if the network drops all packets, it takes a quarter of an hour.
    void opened.sql.end({ timeout: 0 });
  };
  const replaceBy = (next: Opened): void => {
    const earlier = current;
    current = next;
    end(earlier);
    // The driver tries again for a pool that cannot connect yet.
    for (const parameters of listening) current.sql.listen(...parameters).catch(() => {});
    void keepOpen(current);
  };
  const openRival = (): void => {
    // The first pool keeps its full time. Among the others, the oldest is closed.
    if (rivals.length === MAX_RIVALS) end(rivals.shift()!);
    const rival = openOne();
    rivals.push(rival);
    const leave = (): boolean => {
      const index = rivals.indexOf(rival);
      if (index >= 0) rivals.splice(index, 1);
      return index >= 0;
    };
    rival.sql`SELECT 1`.then(
      () => {
        if (!leave()) return;
        replaceBy(rival);
        noteOpened(rival);
      },
      () => {
        if (leave()) end(rival);
      },
    );
  };

  let current = openOne();
  void keepOpen(current);

  const note = <Result>(running: Promise<Result>): Promise<Result> => {
    const entry = {};
    underWay.set(entry, performance.now());
    const end = () => void underWay.delete(entry);
    running.then(end, end);
    return running;
  };
  const sql = aroundQueries(
    () => current.sql,
    (send) => note(send()),
    {
      begin(...parameters: Parameters<Database["begin"]>) {
        return note(current.sql.begin(...parameters));
      },
      end(...parameters: Parameters<Database["end"]>) {
        isEnded = true;
        for (const rival of rivals.splice(0)) end(rival);
        return current.sql.end(...parameters);
      },
      listen(...parameters: Listen) {
        listening.push(parameters);
        return current.sql.listen(...parameters);
      },
    },
  );
  return {
    sql,
    get underWay() {
      return [...underWay.values()].map((beganMs) => Math.max(beganMs, lastOpenedAtMs));
    },
    get openingCount() {
      return current.opening.size;
    },
    get isOpen() {
      return current.standing.size > 0;
    },
    whenOpen(withinMs) {
      if (current.standing.size > 0) return Promise.resolve();
      return new Promise((resolve, reject) => {
        const isOpened = () => {
          clearTimeout(timer);
          resolve();
        };
        const timer = setTimeout(() => {
          openWaiters.delete(isOpened);
          reject(lastFailure ?? new Error(`no connection within ${withinMs / 1_000} s`));
        }, withinMs);
        openWaiters.add(isOpened);
      });
    },
    renew(minAgeMs = 0) {
      if (isEnded) return false;
      if (current.standing.size === 0 && current.opening.size > 0) {
        openRival();
        return false;
      }
      if (performance.now() - lastOpenedAtMs < minAgeMs) return false;
      replaceBy(openOne());
      return true;
    },
  };
}

/** Connections that share a name in the database's list of sessions. No others have it. */
export interface WatchedConnections {
  readonly database: RenewableDatabase;
  readonly applicationName: string;
  readonly poolSize: number;
}

/** Time between two looks while queries run. */
const LOOK_MS = 250;
/**
 * The watch checks queries that take longer. Also the time between two looks if no query runs, because one that begins
 * in between is not late at the second look.
 */
const LATE_MS = 1_000;
/**
 * Number of durations of the check by which a query may exceed LATE_MS. If the machine has no spare CPU time, the check
 * is slow too, and so are answers and new connections.
 */
const CHECK_TIME_FACTOR = 10;
/** A session that has been idle for this long runs none of our queries. */
const IDLE_MS = 750;
/** An answer that is on its way arrives within this time. */
const SECOND_LOOK_MS = 100;
/** Shortest time between two replacements, because new connections take time to open. */
const MIN_RENEWAL_MS = 5_000;

/**
 * Finds connections on which nothing arrives although neither side has closed them. The cause is a network or firewall
 * that drops packets; the operating system would notice after a quarter of an hour. The watch asks about late queries
 * over another connection. If the server works on fewer queries than are awaited, the missing ones were dropped. Then
 * the watch ends the sessions, so that none of their statements takes effect later, and replaces the connections. It
 * does nothing while a server is slow or keeps a statement waiting for a lock.
 */
export class ConnectionWatch {
  readonly #asking: Database;
  readonly #watched: readonly WatchedConnections[];
  readonly #onRenewed: (applicationName: string) => void;
  readonly #renewedAtMs = new Map<WatchedConnections, number>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  /** `asking` is a separate connection. Another watch checks it. */
  constructor(
    asking: Database,
    watched: readonly WatchedConnections[],
    onRenewed: (applicationName: string) => void,
  ) {
    this.#asking = asking;
    this.#watched = watched;
    this.#onRenewed = onRenewed;
    this.#schedule();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #schedule(): void {
    if (this.#isStopped) return;
    const isIdle = this.#watched.every(({ database }) => database.underWay.length === 0);
    this.#timer = setTimeout(() => void this.#look(), isIdle ? LATE_MS : LOOK_MS);
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    try {
      for (const one of this.#watched) if (this.#late(one) > 0) await this.#judge(one);
    } catch {
      // The connection that asks is unreachable too, so nothing is known of the others.
    } finally {
      this.#schedule();
    }
  }

  async #judge(one: WatchedConnections): Promise<void> {
    if (!(await this.#isSwallowed(one))) return;
    await Bun.sleep(SECOND_LOOK_MS);
    if (!(await this.#isSwallowed(one))) return;
    await endSessions(this.#asking, one.applicationName);
    this.#renewedAtMs.set(one, performance.now());
    one.database.renew();
    this.#onRenewed(one.applicationName);
  }

  async #isSwallowed(one: WatchedConnections): Promise<boolean> {
    const beganMs = performance.now();
    const sessions = await sessionsOf(this.#asking, one.applicationName);
    const tookMs = performance.now() - beganMs;
    // Computed after the answer, so that queries that ended in the meantime do not count.
    const late = this.#late(one, LATE_MS + CHECK_TIME_FACTOR * tookMs);
    // If the pool has a connection for each query, each late query has had its own connection from the start.
    const isEachAlone = one.database.underWay.length <= one.poolSize;
    return late > (isEachAlone ? sessions.longAtWork : sessions.atWork);
  }

  /**
   * Returns the number of connections that have late queries, at least. A connection that is being opened has a
   * timeout of its own.
   */
  #late(one: WatchedConnections, lateMs = LATE_MS): number {
    const nowMs = performance.now();
    if (nowMs - (this.#renewedAtMs.get(one) ?? Number.NEGATIVE_INFINITY) < MIN_RENEWAL_MS) return 0;
    const { underWay, openingCount } = one.database;
    const late = underWay.filter((beganMs) => nowMs - beganMs >= lateMs).length;
    return Math.min(late, one.poolSize) - openingCount;
  }
}

interface Sessions {
  /** Number of sessions that work, or worked a moment ago. */
  readonly atWork: number;
  /** Number of sessions that have worked for a while on one statement. */
  readonly longAtWork: number;
}

/** Counts the sessions. If a server does not show what its sessions do, each counts as working. */
async function sessionsOf(sql: Database, applicationName: string): Promise<Sessions> {
  const [row] = await sql<{ at_work: number; long_at_work: number }[]>`
    SELECT count(*) FILTER (WHERE is_unknown OR is_active OR is_fresh)::int AS at_work,
      count(*) FILTER (WHERE is_unknown OR ((is_active OR is_fresh) AND is_long))::int AS long_at_work
    FROM (
      SELECT state_change IS NULL OR state = 'disabled' AS is_unknown,
        state = 'active' AND wait_event_type IS DISTINCT FROM 'Client' AS is_active,
        state_change > now() - make_interval(secs => ${IDLE_MS / 1_000}) AS is_fresh,
        xact_start < now() - make_interval(secs => ${IDLE_MS / 1_000}) AS is_long
      FROM pg_stat_activity
      WHERE datname = current_database() AND application_name = ${applicationName}) AS sessions`;
  return { atWork: row!.at_work, longAtWork: row!.long_at_work };
}

async function endSessions(sql: Database, applicationName: string): Promise<void> {
  await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = ${applicationName}`;
}
