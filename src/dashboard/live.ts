import type { Query } from "../../db/client.ts";
import { figuresMark } from "../../db/queries/dashboard-figures.ts";
import { missingSessions } from "../../db/queries/dashboard-sessions.ts";
import { ERROR_TABLE } from "../http/error-response.ts";
import { eventStream } from "../http/event-stream.ts";
import type { RequestContext } from "../http/route.ts";
import { type Clock, sleep } from "../lib/clock.ts";
import { GatewayError, overloaded } from "../lib/errors.ts";
import { SharedRoom } from "../lib/fair-share.ts";
import { type DashboardSessions, sessionEnded } from "./sessions.ts";

interface LiveDependencies {
  readonly sessions: DashboardSessions;
  readonly clock: Clock;
  readonly keepaliveMs: number;
  isStopping(): boolean;
  read<Result>(query: Query<Result>): Promise<Result>;
}

const MAX_STREAMS = 500;
const MAX_STREAMS_PER_OWNER = 50;
/** Maximum number of streams of one session, one per visible page. Pages in the background close theirs. */
const MAX_STREAMS_PER_SESSION = 12;
/**
 * Time between two checks of a session's key, in milliseconds. A session has to end within a second after
 * its key.
 */
export const TICK_MS = 400;
const TICKS_PER_SESSION_CHECK = 25;
const MARK_AGE_MS = 900;
/**
 * Lifetime of the list of missing sessions, in milliseconds. It is shorter than a tick, so all streams of a
 * tick share one read.
 */
const MISSING_AGE_MS = 300;

interface Mark {
  readonly readAtMs: number;
  readonly mark: Promise<string>;
}

/**
 * Streams that tell open pages to reload changed figures, or that their session has ended. All streams of an
 * organization share one small query per second.
 */
export class LiveFigures {
  readonly #dependencies: LiveDependencies;
  readonly #room = new SharedRoom(MAX_STREAMS, MAX_STREAMS_PER_OWNER);
  readonly #roomOfSessions = new SharedRoom(MAX_STREAMS, MAX_STREAMS_PER_SESSION);
  readonly #marks = new Map<string, Mark>();
  /** Number of open streams by session. */
  readonly #streamsBySession = new Map<string, number>();
  #missing:
    | { readonly readAtMs: number; readonly hashes: Promise<ReadonlySet<string>> }
    | undefined;

  constructor(dependencies: LiveDependencies) {
    this.#dependencies = dependencies;
  }

  /** Opens a stream. Throws 503 if too many are open. */
  open(context: RequestContext): Response {
    const organizationId = context.caller?.key.organizationId;
    // The pages of an operator who views an organization take none of the organization's room.
    const owner = context.operator?.id ?? organizationId;
    const session = this.#dependencies.sessions.idOf(context.request);
    if (!this.#roomOfSessions.tryTake(session)) throw tooManyPages();
    if (!this.#room.tryTake(owner)) {
      this.#roomOfSessions.free(session);
      throw tooManyPages();
    }
    const close = context.keepOpen();
    this.#streamsBySession.set(session, (this.#streamsBySession.get(session) ?? 0) + 1);
    const frames = this.#frames(context.request, organizationId, () => {
      this.#room.free(owner);
      this.#roomOfSessions.free(session);
      const others = this.#streamsBySession.get(session)! - 1;
      if (others === 0) this.#streamsBySession.delete(session);
      else this.#streamsBySession.set(session, others);
      close();
    });
    return eventStream(frames, { "cache-control": "no-store" });
  }

  async *#frames(
    request: Request,
    organizationId: string | undefined,
    onEnd: () => void,
  ): AsyncGenerator<string> {
    const { clock, sessions, keepaliveMs, isStopping } = this.#dependencies;
    let seen = "";
    let sentAtMs = clock.nowMs();
    try {
      let session = await sessions.currentSession(request);
      yield frame("open");
      for (let tick = 1; !isStopping() && !request.signal.aborted; tick++) {
        if (tick % TICKS_PER_SESSION_CHECK === 0) session = await sessions.currentSession(request);
        else if ((await this.#missingSessions()).has(session.tokenHash)) throw sessionEnded();
        else await sessions.assertKey(session);
        const mark = organizationId === undefined ? "" : await this.#mark(organizationId);
        if (mark !== seen) {
          if (seen !== "") yield frame("changed");
          seen = mark;
          sentAtMs = clock.nowMs();
        } else if (clock.nowMs() - sentAtMs >= keepaliveMs) {
          yield ":\n\n";
          sentAtMs = clock.nowMs();
        }
        await sleep(clock, TICK_MS);
      }
    } catch (error) {
      // If the database is unavailable, the page opens another stream, whose error says so.
      const { status } = ERROR_TABLE[error instanceof GatewayError ? error.code : "internal"];
      if (status === 401 || status === 403) yield frame("ended");
    } finally {
      onEnd();
    }
  }

  /** Returns the hashes of sessions that have streams but no longer exist. All streams share the query. */
  #missingSessions(): Promise<ReadonlySet<string>> {
    const { clock, read } = this.#dependencies;
    const nowMs = clock.nowMs();
    if (this.#missing === undefined || Math.abs(nowMs - this.#missing.readAtMs) >= MISSING_AGE_MS) {
      const hashes = read(missingSessions([...this.#streamsBySession.keys()]));
      this.#missing = { readAtMs: nowMs, hashes };
    }
    return this.#missing.hashes;
  }

  #mark(organizationId: string): Promise<string> {
    const { clock, read } = this.#dependencies;
    const nowMs = clock.nowMs();
    const cached = this.#marks.get(organizationId);
    if (cached !== undefined && Math.abs(nowMs - cached.readAtMs) < MARK_AGE_MS) return cached.mark;
    for (const [id, { readAtMs }] of this.#marks) {
      if (Math.abs(nowMs - readAtMs) > 10 * MARK_AGE_MS) this.#marks.delete(id);
    }
    const mark = read(figuresMark(organizationId));
    this.#marks.set(organizationId, { readAtMs: nowMs, mark });
    return mark;
  }
}

function tooManyPages(): GatewayError {
  return overloaded("Too many dashboard pages are open.", 5);
}

function frame(event: string): string {
  return `event: ${event}\ndata: {}\n\n`;
}
