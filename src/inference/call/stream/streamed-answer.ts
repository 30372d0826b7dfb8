/**
 * A streamed answer. Its states:
 *
 *   opening    candidates are tried until one has sent its first event; nothing has been sent to the client
 *              yet, so another provider can still take over
 *   relaying   events are sent to the client, ahead of the last durable checkpoint by no more than the limit
 *   settling   the provider has ended; the charge becomes durable, and the ending follows it
 *   closed     after the ending, an error frame, a cut, or a disconnect of the client
 *
 * Transitions:
 *
 *   opening  → relaying   first event and its checkpoint
 *   opening  → closed     failure, or disconnect of the client
 *   relaying → settling   end of the provider's stream, or its silence after a complete answer
 *   relaying → closed     failure, timeout, or disconnect of the client; the received part is charged
 *   settling → closed     the charge, or the total timeout
 *
 * Four parts do the work, each with its own fields: upstream.ts calls providers until one answers, relay.ts
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
import type { Failover } from "../routing/failover.ts";
import type { Candidate } from "../routing/plan-route.ts";
import { asStreamError, isOfProvider } from "../routing/provider-error.ts";
import { StreamCharge, type StreamChargeDependencies } from "./charge.ts";
import { StreamOutput } from "./output.ts";
import { type Membership, StreamRelay } from "./relay.ts";
import type { StreamTicker, Ticking } from "./ticker.ts";
import { type StartedStream, StreamUpstream } from "./upstream.ts";

/** The dependencies that all streams share. */
export interface StreamDependencies extends StreamChargeDependencies {
  readonly membership: Membership;
  readonly ticker: StreamTicker;
  /** The keepalive interval, counted from the request. */
  readonly openings: DeadlineQueue;
  readonly keepaliveMs: number;
  readonly firstTokenTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

const MAX_BYTES_PER_TOKEN = 64;
const SPARE_OUTPUT_BYTES = 65_536;

/**
 * Opens a stream. Waits for the first event, so that an earlier failure has its own HTTP status. If the
 * provider is silent for longer than the keepalive interval, opens the response and sends keepalives, if the
 * form has them.
 */
export async function streamedAnswer<Request extends AcceptedRequest>(
  dependencies: StreamDependencies,
  form: StreamForm<Request>,
  admitted: AdmittedCall<Request>,
): Promise<CallOutcome> {
  const run = new StreamRun(dependencies, form, admitted);
  try {
    // If the response begins before this settles, its body contains the failure.
    const opened = run.open();
    await (form.keepalive === "" ? opened : finishesBeforeDeadline(opened, dependencies.openings));
  } catch (error) {
    explainFailure(admitted, run.failover);
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
  /** The relay of the provider's events. Undefined before the first event. */
  #relay: StreamRelay | undefined;
  #contentType: string | undefined;
  #opening: Promise<void> | undefined;
  /**
   * True until the stream is open or has failed. An end during this time leaves cleaning up to the opening.
   */
  #isOpening = true;
  /** True after the first byte could be sent. From then on the stream is charged, whatever its outcome. */
  #isOpen = false;
  /** Ends the wait of an opening stream for the database. */
  #endWait: ((failure: GatewayError) => void) | undefined;
  #hasEndedWait = false;
  #finishing: Promise<void> | undefined;
  #isSettling = false;
  #isWhole = false;
  #isClientGone = false;
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
    const { claim, clientSignal, lifetime, cacheWriter } = admitted;
    const { calls, keepaliveMs, ticker } = dependencies;
    const nowMs = calls.steadyClock.nowMs();
    this.#beganMs = nowMs;
    this.#charge = new StreamCharge(dependencies, form, admitted, nowMs);
    this.#upstream = new StreamUpstream(calls, form, admitted, this.#charge);
    const isStored = claim !== undefined;
    const { keepalive } = form;
    this.#output = new StreamOutput({ nowMs, keepaliveMs, keepalive, isStored, cacheWriter });
    lifetime.isDeferred = true;
    clientSignal.addEventListener("abort", this);
    ticker.add(this);
    // An already aborted signal does not emit its event again.
    if (clientSignal.aborted) this.#clientGone();
  }

  /** The candidates that were tried so far. */
  get failover(): Failover {
    return this.#upstream.failover;
  }

  /**
   * Resolves when the first event can be sent. Rejects, after releasing everything, if there will be no first
   * event.
   */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** Returns the response headers. Until the stream is open they do not name the serving candidate. */
  headers(): Record<string, string> {
    const { failover } = this.#upstream;
    const candidate: Candidate | undefined = this.#isOpen ? failover.candidate : undefined;
    const headers = Object.assign(answerHeaders(this.#admitted, candidate, failover), {
      "content-type": this.#contentType ?? this.#form.contentType,
      "cache-control": "no-cache",
      connection: "keep-alive",
      // Prevents buffering in proxies, which would delay the stream.
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
    } else if (silentMs >= idleTimeoutMs)
      this.#expire(timedOut("The provider stopped sending data."));
    this.#upstream.expire(nowMs, firstTokenTimeoutMs);
    this.#charge.tick(nowMs);
    if (!this.#isClosed) this.#output.keepAlive(nowMs);
  }

  /** Handles the abort of the client's signal. */
  handleEvent(): void {
    this.#clientGone();
  }

  abort(): void {
    this.#isAborting = true;
    this.#expire(stopping());
  }

  /**
   * Records that the stream has a durable checkpoint but delivered nothing. An instance that declares this
   * one dead would charge the checkpoint. A client that disconnected pays for the produced part.
   */
  recordUndelivered(): void {
    const isUndelivered = this.#charge.hasBegun && !this.#output.hasDelivered;
    if (isUndelivered && !this.#isClientGone) this.#charge.recordUndelivered();
  }

  async #open(): Promise<void> {
    const { calls } = this.#dependencies;
    const { log } = this.#admitted;
    try {
      this.#assertClient();
      this.#begin(await this.#upstream.start());
      log.firstTokenMs = calls.steadyClock.nowMs() - this.#beganMs;
      this.failover.span?.event("first_token");
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
    if (this.#isClientGone) throw clientClosed();
  }

  #begin(started: StartedStream): void {
    const { calls, membership } = this.#dependencies;
    const { hold, request } = this.#admitted;
    const choices = this.#form.choices(request);
    this.#contentType = started.contentType;
    this.#admitted.recordServed?.(this.#upstream.failover.candidate);
    this.#relay = new StreamRelay(started, {
      checkpoints: this.#charge.begin(started.answer, this.#upstream.failover.candidate),
      output: this.#output,
      steadyClock: calls.steadyClock,
      membership,
      choices,
      // A provider that exceeds this size ignores the token limit.
      maxOutputBytes:
        this.#form.maxOutputBytes?.(request) ??
        hold.outputTokens * choices * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES,
      onEnd: () => this.#finishOnce(),
      onFailure: (error) => this.#fail(error),
    });
  }

  /** Resolves with the checkpoint. Rejects if the stream's time is up before. */
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
    // Reports the call as ended. Otherwise its endpoint would count it as running forever.
    this.#upstream.end(true);
    // If the client disconnected, the produced part is charged. Otherwise nothing is charged, because nothing
    // was delivered.
    if (this.#charge.hasBegun && this.#isClientGone) await this.#chargeAfterDisconnect();
    // A checkpoint can still be written. The settlement is written after it, and no caller waits.
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
      if (this.#form.storeAnswer !== undefined) {
        // After a failure or a disconnect during this step, the stream counts as not settled.
        also = await this.#storeAnswer(relay);
        if (this.#isClosed) return;
      }
      this.#isSettling = true;
      const ending = await this.#settleWhole(relay, also);
      this.#isWhole = true;
      const { cacheWriter } = this.#admitted;
      if (cacheWriter !== undefined) await cacheWriter.wholeStream(ending);
      if (this.#isClosed) return;
      this.#output.deliver(ending, this.#dependencies.calls.steadyClock.nowMs());
      this.#close();
    } catch (error) {
      await this.#fail(error);
    }
  }

  /** Resolves with the last bytes of a complete stream when its charge is durable. */
  async #settleWhole(relay: StreamRelay, also: StatementEffect | undefined): Promise<Uint8Array> {
    const { claim, request } = this.#admitted;
    const usage = this.#charge.usage();
    const figures = this.#charge.figures(usage);
    const facts = this.#factsOf(usage, figures);
    const ending = relay.takeRest(this.#form.ending(relay.answer, request, facts));
    const storable = claim && {
      claim,
      headers: this.headers(),
      body: this.#output.whole(ending),
      isClaimNeeded: false,
    };
    await this.#charge.settle(200, figures, storable, also);
    return ending;
  }

  #storeAnswer(relay: StreamRelay): Promise<StatementEffect | undefined> {
    return this.#form.storeAnswer!(relay.answer, this.#admitted, this.#factsNow());
  }

  #factsNow(): AnswerFacts {
    const usage = this.#charge.usage();
    return this.#factsOf(usage, this.#charge.figures(usage));
  }

  #factsOf(usage: Usage, { chargeNano }: MeteredFigures): AnswerFacts {
    const { requestId } = this.#admitted;
    const { candidate } = this.#upstream.failover;
    return { requestId, candidate, usage, costUsd: usdNumber(chargeNano) };
  }

  /**
   * Fails the stream. After the first byte the failure is sent in the stream, which then has no ending; a
   * form without failure frames is cut. The charge comes first, unless the stream's time is up. Then the
   * charge follows in the background.
   */
  async #fail(thrown: unknown): Promise<void> {
    if (this.#isClosed) return;
    this.#stop();
    const { requestId, log } = this.#admitted;
    const { calls, onError } = this.#dependencies;
    const gatewayFailure = this.#upstream.failure;
    const error = gatewayFailure ?? asStreamError(thrown, this.failover.attemptLog);
    log.errorCode = error.code;
    onError(error.cause ?? error, requestId);
    const isChargeDue = this.#isOpen && !this.#isSettling;
    if (isChargeDue && gatewayFailure === undefined) await this.#relay!.usageAfterError();
    this.#upstream.stop();
    const isBlocked = this.#admitted.guard?.block !== undefined;
    this.#upstream.end(isBlocked || !isOfProvider(gatewayFailure ?? thrown));
    const isCharged = isChargeDue && !(this.#isAborting && this.#form.isDeliveredWhole === true);
    const facts = isCharged ? this.#factsNow() : undefined;
    if (isChargeDue) {
      this.#isSettling = true;
      await (isCharged ? this.#charge.settleInTime() : this.#charge.settleAtZeroInTime());
    }
    await this.#freeClaim();
    const frame = this.#form.failure(error, requestId, this.#relay?.answer, facts);
    if (frame === undefined) this.#output.cut();
    else this.#output.send(Buffer.from(frame, "latin1"), calls.steadyClock.nowMs());
    this.#close();
  }

  /**
   * Ends the stream after the client has disconnected. Stops the provider immediately and charges what it has
   * produced.
   */
  #clientGone(): void {
    if (this.#isClosed) return;
    this.#stop();
    this.#isClientGone = true;
    const { log } = this.#admitted;
    log.status = 499;
    log.errorCode = "client_closed_request";
    const isChargeDue = this.#isOpen && !this.#isSettling;
    this.#isSettling ||= isChargeDue;
    this.#upstream.end(true);
    if (isChargeDue) void this.#settleAfterDisconnect().finally(() => this.#detach());
    else {
      this.#stopProvider();
      // An opening stream notices the disconnect and ends itself.
      if (!this.#isOpening) void Promise.resolve().finally(() => this.#detach());
    }
  }

  /**
   * Stops the provider immediately, unless the answer is complete and only its usage is missing. Clients
   * disconnect at the finish reason, and hidden reasoning tokens appear only in the usage.
   */
  async #settleAfterDisconnect(): Promise<void> {
    const usage = this.#relay!.usageAfterAnswer();
    if (usage !== undefined) await usage;
    this.#stopProvider();
    await this.#chargeAfterDisconnect();
  }

  #chargeAfterDisconnect(): Promise<void> {
    return this.#form.isWaived?.() === true
      ? this.#charge.settleAtZeroInBackground()
      : this.#charge.settleInBackground(499);
  }

  #stopProvider(): void {
    this.#upstream.stop();
    this.#relay?.cancel();
  }

  /**
   * Ends the stream as complete if every choice has a finish reason. Some providers never send an end marker.
   */
  #endAnswered(): boolean {
    if (!this.#isOpen || this.#isClosed || this.#finishing) return false;
    const relay = this.#relay!;
    if (!relay.stopWaitingForEnd()) return false;
    // A pull that waits for the provider sees the end of the stream itself.
    if (!relay.isWaiting) void this.#finishOnce();
    return true;
  }

  /** Ends the stream with the failure. Returns it, or an earlier failure if there was one. */
  #expire(failure: GatewayError): GatewayError {
    const earlier = this.#upstream.failure;
    if (earlier !== undefined) return earlier;
    // The charge that is being written decides the outcome of a background response, so the failure is
    // ignored.
    if (this.#isSettling && this.#form.isDeliveredWhole === true) return failure;
    if (this.#endAnswered()) return failure;
    this.#upstream.fail(failure);
    this.#relay?.cancel();
    // If no pull waits for the provider, nothing else would end the stream.
    if (!this.#isOpening && this.#relay?.isWaiting !== true) void this.#fail(failure);
    return failure;
  }

  /** Stops all delivery. */
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
    const { clientSignal, lifetime, cacheWriter } = this.#admitted;
    cacheWriter?.endStream();
    this.#dependencies.ticker.remove(this);
    clientSignal.removeEventListener("abort", this);
    const { finish } = lifetime;
    lifetime.finish = undefined;
    if (!this.#isWhole) void this.#freeClaim();
    finish?.();
  }

  /** Frees the idempotency key after an error or a disconnect. */
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
