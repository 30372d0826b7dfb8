import type { Clock } from "../../lib/clock.ts";
import type { GatewayError } from "../../lib/errors.ts";
import { CallAbort } from "../../providers/call-abort.ts";
import type { CandidateCall } from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";
import { noteCandidate } from "./chat-meter.ts";
import type { ChatStreamCall } from "./chat-stream-call.ts";
import { type StartedUpstream, type StreamAttempt, startUpstream } from "./start-upstream.ts";

/** Candidates that are tried for one stream, each until its first event comes, or does not come in time. */
export class StreamAttempts implements CandidateCall<StartedUpstream, StartedUpstream> {
  /** Ends the attempt under way, and the stream that came of one. */
  readonly abort = new CallAbort();
  readonly trail: string[] = [];
  /** Why the gateway itself ended them; the first reason stands. */
  failure: GatewayError | undefined;
  readonly #call: ChatStreamCall;
  readonly #clock: Clock;
  readonly #steadyClock: Clock;
  #running: StreamAttempt | undefined;
  #startedMs = 0;

  constructor(call: ChatStreamCall, clock: Clock, steadyClock: Clock) {
    this.#call = call;
    this.#clock = clock;
    this.#steadyClock = steadyClock;
  }

  async start(candidate: Candidate): Promise<StartedUpstream> {
    const attempt: StreamAttempt = { abort: new CallAbort(), isExpired: false };
    this.abort.addEventListener("abort", { handleEvent: () => attempt.abort.abort() });
    this.#startedMs = this.#steadyClock.nowMs();
    this.#running = attempt;
    noteCandidate(this.#call.log, candidate);
    try {
      return await startUpstream(candidate, {
        body: this.#call.providerBody(candidate),
        requestId: this.#call.requestId,
        hidesReasoning: this.#call.hidesReasoning,
        nowSeconds: Math.floor(this.#clock.nowMs() / 1_000),
        attempt,
      });
    } finally {
      this.#running = undefined;
    }
  }

  accept(started: StartedUpstream): StartedUpstream {
    return started;
  }

  fail(failure: GatewayError): void {
    this.failure ??= failure;
    this.abort.abort();
  }

  /** Gives up an attempt that has waited for its first event for so long. */
  expire(nowMs: number, afterMs: number): void {
    const attempt = this.#running;
    if (attempt === undefined || nowMs - this.#startedMs < afterMs) return;
    attempt.isExpired = true;
    attempt.abort.abort();
  }
}
