import { type CallDependencies, CandidateTries } from "../../calls/routing/call-candidates.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { GatewayError } from "../../lib/errors.ts";
import { CallAbort } from "../../providers/transport/call-abort.ts";
import type { ChatStreamCall } from "./chat-stream-call.ts";
import { type StartedUpstream, StreamAttempt, startUpstream } from "./start-upstream.ts";

/** Candidates that are tried for one stream, each until its first event comes, or does not come in time. */
export class StreamAttempts {
  /** Ends the attempt under way, and the stream that came of one. */
  readonly abort = new CallAbort();
  readonly tries: CandidateTries;
  /** Why the gateway itself ended them; the first reason stands. */
  failure: GatewayError | undefined;
  readonly #call: ChatStreamCall;
  readonly #dependencies: CallDependencies;
  #running: StreamAttempt | undefined;
  #startedMs = 0;

  constructor(call: ChatStreamCall, dependencies: CallDependencies) {
    this.#call = call;
    this.#dependencies = dependencies;
    this.tries = new CandidateTries(dependencies, call.candidates, this.abort, call.log);
  }

  /** The first event of the candidate that answers. Rejects with the caller's error where none does. */
  run(): Promise<StartedUpstream> {
    return this.tries.firstAnswer((candidate) => this.#try(candidate));
  }

  async #try(candidate: Candidate): Promise<StartedUpstream> {
    try {
      const started = await startUpstream(candidate, {
        hidesReasoning: this.#call.hidesReasoning,
        nowSeconds: Math.floor(this.#dependencies.clock.nowMs() / 1_000),
        attempt: this.#begin(candidate),
      });
      this.#call.log.releaseBody?.();
      return started;
    } finally {
      this.#running = undefined;
    }
  }

  #begin(candidate: Candidate): StreamAttempt {
    const attempt = new StreamAttempt(this.#call.requestId, true);
    attempt.model = candidate.upstreamModel;
    attempt.modelId = candidate.model.canonicalId ?? candidate.model.id;
    attempt.body = this.#call.providerBody(candidate);
    attempt.onNewConnection = this.tries.onNewConnection;
    this.abort.addEventListener("abort", attempt);
    // An abort while the candidate was chosen emits no further event.
    if (this.abort.aborted) attempt.abort();
    this.#startedMs = this.#dependencies.steadyClock.nowMs();
    this.#running = attempt;
    return attempt;
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
    attempt.abort();
  }
}
