/**
 * One streamed answer. Its states:
 *
 *   opening    candidates are tried until one has sent its first event; nothing has left yet, so another
 *              provider can still take over.
 *   relaying   events go to the client, never further ahead of the last durable checkpoint than its bound.
 *   settling   the provider has ended; its charge becomes durable, and the ending follows it.
 *   closed     by the ending, by an error frame or a cut, or because the client went away.
 *
 * opening → relaying by the first event and its checkpoint; opening → closed by a failure or the client;
 * relaying → settling by the provider's end, or its silence behind all of it; relaying → closed by a failure,
 * a timeout or the client (what came is charged); settling → closed by the charge or the total timeout.
 *
 * Four parts do the work, each with fields of its own: upstream.ts calls providers until one answers, relay.ts
 * moves the pieces, charge.ts writes checkpoints and settles, output.ts is the client's side.
 */

import type { StatementEffect } from "../../../../db/ledger/effects.ts";
import { asGatewayError } from "../../../../db/unavailable.ts";
import { type DeadlineQueue, finishesBeforeDeadline } from "../../../lib/deadlines.ts";
import { clientClosed, GatewayError, stopping } from "../../../lib/errors.ts";
import { usdNumber } from "../../../lib/money.ts";
import { traced } from "../../../lib/trace.ts";
import type { Usage } from "../../../lib/usage.ts";
import { addCostHeader, answerHeaders, explainFailure } from "../answer-headers.ts";
import type { AdmittedCall, CallOutcome } from "../call.ts";
import type { MeteredFigures } from "../call-charge.ts";
import type { AcceptedRequest, AnswerFacts, StreamForm } from "../endpoint.ts";
import type { Failover } from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";
import { asStreamError, isOfProvider } from "../routing/provider-error.ts";
import { StreamCharge, type StreamChargeDependencies } from "./charge.ts";
import { StreamOutput } from "./output.ts";
import { type Membership, StreamRelay } from "./relay.ts";
import type { StreamTicker, Ticking } from "./ticker.ts";
import { type StartedStream, StreamUpstream } from "./upstream.ts";

/** What all streams of the gateway share. */
export interface StreamDependencies extends StreamChargeDependencies {
  readonly membership: Membership;
  readonly ticker: StreamTicker;
  /** The keepalive interval from when a stream is asked for. */
  readonly openings: DeadlineQueue;
  readonly keepaliveMs: number;
  readonly firstTokenTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

const MAX_BYTES_PER_TOKEN = 64;
const SPARE_OUTPUT_BYTES = 65_536;

/**
 * Waits for the first event, so that a failure before it has its own status; a provider silent for longer
 * than the keepalive interval is awaited in an open stream, where the form has a keepalive for it.
 */
export async function streamedAnswer<Request extends AcceptedRequest>(
  dependencies: StreamDependencies,
  form: StreamForm<Request>,
  admitted: AdmittedCall<Request>,
): Promise<CallOutcome> {
  const run = new StreamRun(dependencies, form, admitted);
  try {
    // Where the answer begins before this is known, its body tells the failure.
    const opened = run.open();
    await (form.keepalive === "" ? opened : finishesBeforeDeadline(opened, dependencies.openings));
  } catch (error) {
    explainFailure(admitted, run.tries);
    throw error;
  }
  const headers = run.headers();
  headers["x-gateway-latency-ms"] = String(Math.round(performance.now() - admitted.startedMs));
  return { kind: "stream", headers, body: run.body() };
}

export class StreamRun<Request extends AcceptedRequest> implements Ticking, EventListenerObject {
  older: Ticking | undefined;
  newer: Ticking | undefined;
  readonly #dependencies: StreamDependencies;
  readonly #form: StreamForm<Request>;
  readonly #admitted: AdmittedCall<Request>;
  readonly #beganMs: number;
  readonly #upstream: StreamUpstream<Request>;
  readonly #charge: StreamCharge<Request>;
  readonly #output: StreamOutput;
  /** From the first event on. */
  #relay: StreamRelay | undefined;
  #contentType: string | undefined;
  #opening: Promise<void> | undefined;
  /** Neither open nor failed: what ends the stream now leaves the rest to the opening. */
  #isOpening = true;
  /** The first byte may leave: from here on the stream is charged, whatever becomes of it. */
  #isOpen = false;
  /** Ends the wait of an opening stream for the database. */
  #endWait: ((failure: GatewayError) => void) | undefined;
  #hasEndedWait = false;
  #finishing: Promise<void> | undefined;
  #isSettling = false;
  #isWhole = false;
  #isGone = false;
  #isAborting = false;
  #isClosed = false;

  constructor(
    dependencies: StreamDependencies,
    form: StreamForm<Request>,
    admitted: AdmittedCall<Request>,
  ) {
    this.#dependencies = dependencies;
    this.#form = form;
    this.#admitted = admitted;
    const { claim, clientSignal, log, keeping } = admitted;
    const { calls, keepaliveMs, ticker } = dependencies;
    const nowMs = calls.steadyClock.nowMs();
    this.#beganMs = nowMs;
    this.#charge = new StreamCharge(dependencies, form, admitted, nowMs);
    this.#upstream = new StreamUpstream(calls, form, admitted, this.#charge);
    const isKept = claim !== undefined;
    const { keepalive } = form;
    this.#output = new StreamOutput({ nowMs, keepaliveMs, keepalive, isKept, keeping });
    log.isDeferred = true;
    clientSignal.addEventListener("abort", this);
    ticker.add(this);
    // A client that has already gone is not reported again.
    if (clientSignal.aborted) this.#clientGone();
  }

  /** What was tried so far. */
  get tries(): Failover {
    return this.#upstream.tries;
  }

  /** Resolves when the first event may leave. Rejects, with everything released, where none ever will. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** Of the response; until the stream is open without those of the candidate that serves it. */
  headers(): Record<string, string> {
    const { tries } = this.#upstream;
    const candidate: Candidate | undefined = this.#isOpen ? tries.candidate : undefined;
    const headers = Object.assign(answerHeaders(this.#admitted, candidate, tries), {
      "content-type": this.#contentType ?? this.#form.contentType,
      "cache-control": "no-cache",
      connection: "keep-alive",
      // Proxies that gather a response before they pass it on would hold the stream back.
      "x-accel-buffering": "no",
    });
    if (
      candidate !== undefined &&
      this.#form.isCostKnown?.(this.#admitted.request, candidate.terms)
    )
      addCostHeader(headers, this.#charge.figures());
    return headers;
  }

  body(): ReadableStream<Uint8Array> {
    return this.#output.body(
      () => (this.#isOpen ? this.#relay!.pull() : this.#openAndPull()),
      () => this.#clientGone(),
    );
  }

  tick(nowMs: number): void {
    const { firstTokenTimeoutMs, idleTimeoutMs, totalTimeoutMs } = this.#dependencies;
    const silentMs = this.#relay?.silentMs(nowMs) ?? 0;
    if (nowMs - this.#beganMs >= totalTimeoutMs) {
      const failure = this.#expire(timedOut("The request took too long."));
      this.#endWait?.(failure);
    } else if (silentMs >= idleTimeoutMs) this.#expire(timedOut("The provider fell silent."));
    this.#upstream.expire(nowMs, firstTokenTimeoutMs);
    this.#charge.tick(nowMs);
    if (!this.#isClosed) this.#output.keepAlive(nowMs);
  }

  /** The client's signal has aborted. */
  handleEvent(): void {
    this.#clientGone();
  }

  abort(): void {
    this.#isAborting = true;
    this.#expire(stopping());
  }

  /**
   * A stream that opens may have a durable checkpoint before its first byte leaves: an instance that declares
   * this one dead charges that. A client that left pays for what was produced.
   */
  recordUndelivered(): void {
    const isUndelivered = this.#charge.hasBegun && !this.#output.hasDelivered;
    if (isUndelivered && !this.#isGone) this.#charge.recordUndelivered();
  }

  async #open(): Promise<void> {
    const { calls } = this.#dependencies;
    const { log } = this.#admitted;
    try {
      this.#assertClient();
      this.#begin(await this.#upstream.start());
      log.firstTokenMs = calls.steadyClock.nowMs() - this.#beganMs;
      this.tries.span?.event("first_token");
      this.#assertClient();
      await this.#untilTimeIsUp(traced(log.trace, "checkpoint", this.#charge.cover()));
      this.#assertClient();
      this.#isOpen = true;
    } catch (thrown) {
      const error = this.#upstream.failure ?? thrown;
      log.errorCode = asGatewayError(error).code;
      await this.#abandonOpening();
      this.#detach();
      throw error;
    } finally {
      this.#isOpening = false;
    }
  }

  #assertClient(): void {
    if (this.#isGone) throw clientClosed();
  }

  #begin(started: StartedStream): void {
    const { calls, membership } = this.#dependencies;
    const { hold, request } = this.#admitted;
    const choices = this.#form.choices(request);
    this.#contentType = started.contentType;
    this.#admitted.recordServed?.(this.#upstream.tries.candidate);
    this.#relay = new StreamRelay(started, {
      checkpoints: this.#charge.begin(started.answer, this.#upstream.tries.candidate),
      output: this.#output,
      steadyClock: calls.steadyClock,
      membership,
      choices,
      // Beyond this a provider is not sending tokens of its limit any more.
      maxOutputBytes:
        this.#form.maxOutputBytes?.(request) ??
        hold.outputTokens * choices * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES,
      onEnd: () => this.#finishOnce(),
      onFailure: (error) => this.#fail(error),
    });
  }

  /** Rejects where the stream's time is up before. */
  async #untilTimeIsUp(covered: Promise<void>): Promise<void> {
    const { promise: timeIsUp, reject } = Promise.withResolvers<never>();
    this.#endWait = (failure) => {
      this.#hasEndedWait = true;
      reject(failure);
    };
    try {
      await Promise.race([covered, timeIsUp]);
    } finally {
      this.#endWait = undefined;
    }
  }

  async #abandonOpening(): Promise<void> {
    // The provider did its part; its endpoint must not count this call as running without end.
    this.#upstream.end(true);
    // What a provider had produced for a client that went away is charged; otherwise nothing left here.
    if (this.#charge.hasBegun && this.#isGone) await this.#chargeLeft();
    // A checkpoint may still be written: what ends it is written after it, and no caller waits.
    else if (this.#hasEndedWait && this.#charge.isWriting)
      void this.#charge.settleAtZeroInBackground();
    else this.#charge.release();
    this.#upstream.stop();
  }

  async #openAndPull(): Promise<void> {
    try {
      await this.open();
    } catch (error) {
      return this.#fail(error);
    }
    return this.#relay!.pull();
  }

  #finishOnce(): Promise<void> {
    this.#finishing ??= this.#finish(this.#relay!);
    return this.#finishing;
  }

  async #finish(relay: StreamRelay): Promise<void> {
    try {
      if (!relay.answer.hasFinished) throw endedWithoutReason();
      this.#upstream.end(true, relay.answer.outputTokens);
      let also: StatementEffect | undefined;
      if (this.#form.keep !== undefined) {
        // A failure here, and a client that leaves, is that of a stream which is not settled yet.
        also = await this.#keep(relay);
        if (this.#isClosed) return;
      }
      this.#isSettling = true;
      const ending = await this.#settleWhole(relay, also);
      this.#isWhole = true;
      const { keeping } = this.#admitted;
      if (keeping !== undefined) await keeping.wholeStream(ending);
      if (this.#isClosed) return;
      this.#output.deliver(ending, this.#dependencies.calls.steadyClock.nowMs());
      this.#close();
    } catch (error) {
      await this.#fail(error);
    }
  }

  /** Resolves, with what a whole stream ends with, when its charge is durable. */
  async #settleWhole(relay: StreamRelay, also: StatementEffect | undefined): Promise<Uint8Array> {
    const { claim, request } = this.#admitted;
    const usage = this.#charge.usage();
    const figures = this.#charge.figures(usage);
    const facts = this.#factsOf(usage, figures);
    const ending = relay.takeRest(this.#form.ending(relay.answer, request, facts));
    const kept = claim && {
      claim,
      headers: this.headers(),
      body: this.#output.whole(ending),
      isClaimNeeded: false,
    };
    await this.#charge.settle(200, figures, kept, also);
    return ending;
  }

  #keep(relay: StreamRelay): Promise<StatementEffect | undefined> {
    return this.#form.keep!(relay.answer, this.#admitted, this.#factsNow());
  }

  #factsNow(): AnswerFacts {
    const usage = this.#charge.usage();
    return this.#factsOf(usage, this.#charge.figures(usage));
  }

  #factsOf(usage: Usage, { chargeNano }: MeteredFigures): AnswerFacts {
    const { requestId } = this.#admitted;
    const { candidate } = this.#upstream.tries;
    return { requestId, candidate, usage, costUsd: usdNumber(chargeNano) };
  }

  /**
   * After the first byte a failure is sent in the stream, which then ends without its ending; one that has no
   * place for it is cut. Its charge comes first, unless the stream's time is up before: then it follows, however long it takes.
   */
  async #fail(thrown: unknown): Promise<void> {
    if (this.#isClosed) return;
    this.#stop();
    const { requestId, log } = this.#admitted;
    const { calls, onError } = this.#dependencies;
    const own = this.#upstream.failure;
    const error = own ?? asStreamError(thrown, this.tries.trail);
    log.errorCode = error.code;
    onError(error.cause ?? error, requestId);
    const isOwed = this.#isOpen && !this.#isSettling;
    if (isOwed && own === undefined) await this.#relay!.usageBehindError();
    this.#upstream.stop();
    const isBlocked = this.#admitted.guard?.block !== undefined;
    this.#upstream.end(isBlocked || !isOfProvider(own ?? thrown));
    const isCharged = isOwed && !(this.#isAborting && this.#form.isDeliveredWhole === true);
    const facts = isCharged ? this.#factsNow() : undefined;
    if (isOwed) {
      this.#isSettling = true;
      await (isCharged ? this.#charge.settleInTime() : this.#charge.waiveInTime());
    }
    await this.#freeClaim();
    const frame = this.#form.failure(error, requestId, this.#relay?.answer, facts);
    if (frame === undefined) this.#output.cut();
    else this.#output.send(Buffer.from(frame, "latin1"), calls.steadyClock.nowMs());
    this.#close();
  }

  /** The client went away: the provider is stopped at once, and what it had produced is charged. */
  #clientGone(): void {
    if (this.#isClosed) return;
    this.#stop();
    this.#isGone = true;
    const { log } = this.#admitted;
    log.status = 499;
    log.errorCode = "client_closed_request";
    const isOwed = this.#isOpen && !this.#isSettling;
    this.#isSettling ||= isOwed;
    this.#upstream.end(true);
    if (isOwed) void this.#settleLeft().finally(() => this.#detach());
    else {
      this.#stopProvider();
      // A stream that opens sees it, and ends itself.
      if (!this.#isOpening) void Promise.resolve().finally(() => this.#detach());
    }
  }

  /**
   * Stops the provider at once, but where the answer is whole and only its usage is still to come. Clients
   * leave at the finish reason, and what a model thinks unseen shows in the usage alone.
   */
  async #settleLeft(): Promise<void> {
    const usage = this.#relay!.usageBehindAnswer();
    if (usage !== undefined) await usage;
    this.#stopProvider();
    await this.#chargeLeft();
  }

  #chargeLeft(): Promise<void> {
    return this.#form.isWaived?.() === true
      ? this.#charge.settleAtZeroInBackground()
      : this.#charge.settleInBackground(499);
  }

  #stopProvider(): void {
    this.#upstream.stop();
    this.#relay?.cancel();
  }

  /** Ends it as a whole one where nothing is missing but word of the end, which some providers never send. */
  #endAnswered(): boolean {
    if (!this.#isOpen || this.#isClosed || this.#finishing) return false;
    const relay = this.#relay!;
    if (!relay.stopWaitingForEnd()) return false;
    // Who waits for the provider finds its stream at its end.
    if (!relay.isWaiting) void this.#finishOnce();
    return true;
  }

  /** Ends the stream because of the failure, or of an earlier one, which it returns then. */
  #expire(failure: GatewayError): GatewayError {
    const earlier = this.#upstream.failure;
    if (earlier !== undefined) return earlier;
    // The charge that is being written decides: with it a background response is answered, whatever is said before.
    if (this.#isSettling && this.#form.isDeliveredWhole === true) return failure;
    if (this.#endAnswered()) return failure;
    this.#upstream.fail(failure);
    this.#relay?.cancel();
    // If nothing awaits the provider, nothing else would end the stream.
    if (!this.#isOpening && this.#relay?.isWaiting !== true) void this.#fail(failure);
    return failure;
  }

  /** Nothing more is delivered. */
  #stop(): void {
    this.#isClosed = true;
    this.#relay?.stop();
  }

  #close(): void {
    this.#stop();
    this.#detach();
    this.#output.close();
  }

  #detach(): void {
    const { clientSignal, log, keeping } = this.#admitted;
    keeping?.endStream();
    this.#dependencies.ticker.remove(this);
    clientSignal.removeEventListener("abort", this);
    const { finish } = log;
    log.finish = undefined;
    if (!this.#isWhole) void this.#freeClaim();
    finish?.();
  }

  /** Errors and disconnects free the idempotency key. */
  #freeClaim(): Promise<void> | undefined {
    const { claim } = this.#admitted;
    return claim && this.#dependencies.idempotency.free(claim);
  }
}

function timedOut(message: string): GatewayError {
  return new GatewayError("provider_timeout", message);
}

function endedWithoutReason(): GatewayError {
  return new GatewayError("provider_error", "The provider's stream ended without a finish reason.");
}
