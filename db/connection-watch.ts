import { aroundQueries } from "./around-queries.ts";
import { type ConnectionEvents, type Database, retryDelaySeconds } from "./client.ts";

/** A database whose connections can be given up for new ones. */
export interface RenewableDatabase {
  /** Stands for the connections of the moment. */
  readonly sql: Database;
  /**
   * When each query that is under way was begun, by `performance.now()`; not earlier than the last connection
   * was opened, since it may have waited for that one.
   */
  readonly underWay: readonly number[];
  /** Connections that are being opened. */
  readonly openingCount: number;
  /** True if a connection is open and serves. */
  readonly isOpen: boolean;
  /** Resolves when a connection is open. Rejects as the last try did if none is within that time. */
  whenOpen(withinMs: number): Promise<void>;
  /**
   * Gives the connections up without a word to the other side, which may be out of reach. What is under way
   * on them rejects with CONNECTION_DESTROYED; listeners move to the new ones, and are notified. Does nothing
   * if one was opened within `minAgeMs`. A first connection that is still being opened is kept until it times
   * out: another one is opened beside it, and the first of them to stand is used. Returns true if connections
   * were given up.
   */
  renew(minAgeMs?: number): boolean;
}

type Listen = Parameters<Database["listen"]>;

/** The connections of one opening, and which of them stand. */
interface Opened {
  readonly sql: Database;
  readonly opening: Set<number>;
  readonly standing: Set<number>;
}

/** Connections that may be opened beside the one that is used as soon as it stands. */
const MAX_RIVALS = 4;

/**
 * `open` is called for the first connections, and for each of those that follow. One connection is kept open,
 * so that the first request after an outage does not wait for one.
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
    // Its end is not waited for: in a network that swallows everything it takes a quarter of an hour.
    void opened.sql.end({ timeout: 0 });
  };
  const replaceBy = (next: Opened): void => {
    const earlier = current;
    current = next;
    end(earlier);
    // One that cannot connect yet is tried again by the driver.
    for (const parameters of listening) current.sql.listen(...parameters).catch(() => {});
    void keepOpen(current);
  };
  const openRival = (): void => {
    // The first one keeps its whole time; of those beside it the oldest makes room.
    if (rivals.length === MAX_RIVALS) end(rivals.shift()!);
    const rival = openOne();
    rivals.push(rival);
    const leave = (): boolean => {
      const place = rivals.indexOf(rival);
      if (place >= 0) rivals.splice(place, 1);
      return place >= 0;
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

/** Connections that share one name in the database's list of sessions, which no others have. */
export interface WatchedConnections {
  readonly database: RenewableDatabase;
  readonly applicationName: string;
  readonly poolSize: number;
}

const LOOK_MS = 250;
/** What takes longer is looked into. */
const LATE_MS = 1_000;
/** On a machine that lacks processor time an answer, and a new connection, takes as much longer as the look. */
const LOOKS_OF_PATIENCE = 10;
/** A session that has stood still for so long does not work on anything of ours. */
const IDLE_MS = 750;
/** An answer that is just on its way has come by then. */
const SECOND_LOOK_MS = 100;
/** New connections may take their time to be made. */
const MIN_RENEWAL_MS = 5_000;

/**
 * Notices connections on which nothing arrives although neither side has closed them: a network, or
 * a firewall between, that swallows packets, which the operating system would find out after a quarter of
 * an hour. Whatever is late is asked for over another connection: where the server does not work on as
 * much as is waited for here, what is missing was swallowed. Then the sessions are ended, so that nothing
 * of them can happen later, and the connections are replaced. A server that is slow, or keeps a
 * statement waiting for a lock, works, and is left in peace.
 */
export class ConnectionWatch {
  readonly #asking: Database;
  readonly #watched: readonly WatchedConnections[];
  readonly #onRenewed: (applicationName: string) => void;
  readonly #renewedAtMs = new Map<WatchedConnections, number>();
  readonly #timer: ReturnType<typeof setInterval>;
  #isLooking = false;

  /** `asking` is a connection of its own, whose silence another watch notices. */
  constructor(
    asking: Database,
    watched: readonly WatchedConnections[],
    onRenewed: (applicationName: string) => void,
  ) {
    this.#asking = asking;
    this.#watched = watched;
    this.#onRenewed = onRenewed;
    this.#timer = setInterval(() => void this.#look(), LOOK_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      for (const one of this.#watched) if (this.#late(one) > 0) await this.#judge(one);
    } catch {
      // Who is asked is out of reach too: then nothing is known of the others.
    } finally {
      this.#isLooking = false;
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
    // Reckoned behind the answer: what has come meanwhile is not waited for any more.
    const late = this.#late(one, LATE_MS + LOOKS_OF_PATIENCE * tookMs);
    // If there is a connection for each, each late query has had one to itself all the time.
    const isEachAlone = one.database.underWay.length <= one.poolSize;
    return late > (isEachAlone ? sessions.longAtWork : sessions.atWork);
  }

  /** Connections that are waited for, at least. One that is being opened has a timeout of its own. */
  #late(one: WatchedConnections, lateMs = LATE_MS): number {
    const nowMs = performance.now();
    if (nowMs - (this.#renewedAtMs.get(one) ?? Number.NEGATIVE_INFINITY) < MIN_RENEWAL_MS) return 0;
    const { underWay, openingCount } = one.database;
    const late = underWay.filter((beganMs) => nowMs - beganMs >= lateMs).length;
    return Math.min(late, one.poolSize) - openingCount;
  }
}

interface Sessions {
  /** Those that are at work, or were a moment ago. */
  readonly atWork: number;
  /** Those that have been for a while, with one thing. */
  readonly longAtWork: number;
}

/** Where a server does not tell what its sessions do, each counts as being at work. */
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
