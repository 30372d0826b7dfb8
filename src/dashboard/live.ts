import type { Query } from "../../db/client.ts";
import { figuresMark } from "../../db/queries/dashboard-figures.ts";
import { ERROR_TABLE } from "../http/error-response.ts";
import type { RequestContext } from "../http/route.ts";
import { type Clock, sleep } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { SharedRoom } from "../lib/fair-share.ts";
import type { DashboardSessions } from "./sessions.ts";

interface LiveDependencies {
  readonly sessions: DashboardSessions;
  readonly clock: Clock;
  readonly keepaliveMs: number;
  isStopping(): boolean;
  read<Result>(query: Query<Result>): Promise<Result>;
}

const MAX_STREAMS = 500;
const MAX_STREAMS_OF_ONE = 50;
/** Pages that one person sees at once; those in the background close theirs. */
const MAX_STREAMS_OF_SESSION = 12;
/** A session has to end within a second of its key's end, so its key is looked at more often. */
const TICK_MS = 400;
const TICKS_OF_SESSION = 25;
const MARK_AGE_MS = 900;

interface Mark {
  readonly readAtMs: number;
  readonly mark: Promise<string>;
}

/**
 * Streams that report to open pages that figures have changed, for them to ask again, and that their session
 * has ended. All streams of an organization share one small read a second.
 */
export class LiveFigures {
  readonly #dependencies: LiveDependencies;
  readonly #room = new SharedRoom(MAX_STREAMS, MAX_STREAMS_OF_ONE);
  readonly #roomOfSessions = new SharedRoom(MAX_STREAMS, MAX_STREAMS_OF_SESSION);
  readonly #marks = new Map<string, Mark>();

  constructor(dependencies: LiveDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 503 where too many are open. */
  open(context: RequestContext): Response {
    const organizationId = context.caller?.key.organizationId;
    const owner = organizationId ?? context.operator.id;
    const session = this.#dependencies.sessions.idOf(context.request);
    if (!this.#roomOfSessions.tryTake(session)) throw tooManyPages();
    if (!this.#room.tryTake(owner)) {
      this.#roomOfSessions.free(session);
      throw tooManyPages();
    }
    const close = context.keepOpen();
    const frames = this.#frames(context.request, organizationId, () => {
      this.#room.free(owner);
      this.#roomOfSessions.free(session);
      close();
    });
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { value, done } = await frames.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(value));
      },
      cancel: () => void frames.return(undefined),
    });
    return new Response(body, {
      headers: { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store" },
    });
  }

  async *#frames(
    request: Request,
    organizationId: string | undefined,
    onOver: () => void,
  ): AsyncGenerator<string> {
    const { clock, sessions, keepaliveMs, isStopping } = this.#dependencies;
    let seen = "";
    let sentAtMs = clock.nowMs();
    try {
      let session = await sessions.stillOpen(request);
      yield frame("open");
      for (let tick = 1; !isStopping() && !request.signal.aborted; tick++) {
        if (tick % TICKS_OF_SESSION === 0) session = await sessions.stillOpen(request);
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
      // Where the database cannot be asked the page opens another stream, which says what is wrong.
      const { status } = ERROR_TABLE[error instanceof GatewayError ? error.code : "internal"];
      if (status === 401 || status === 403) yield frame("ended");
    } finally {
      onOver();
    }
  }

  #mark(organizationId: string): Promise<string> {
    const { clock, read } = this.#dependencies;
    const nowMs = clock.nowMs();
    const known = this.#marks.get(organizationId);
    if (known !== undefined && Math.abs(nowMs - known.readAtMs) < MARK_AGE_MS) return known.mark;
    for (const [id, { readAtMs }] of this.#marks) {
      if (Math.abs(nowMs - readAtMs) > 10 * MARK_AGE_MS) this.#marks.delete(id);
    }
    const mark = read(figuresMark(organizationId));
    this.#marks.set(organizationId, { readAtMs: nowMs, mark });
    return mark;
  }
}

function tooManyPages(): GatewayError {
  return new GatewayError("overloaded", "Too many pages of the dashboard are open.", {
    retryAfterSeconds: 5,
  });
}

function frame(event: string): string {
  return `event: ${event}\ndata: {}\n\n`;
}
