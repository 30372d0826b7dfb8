/**
 * One running stream. Its states:
 *
 *   opening    candidates are tried until one has sent its first event; nothing has left yet, so another
 *              provider can still take over.
 *   relaying   events go to the client, never further ahead of the last durable checkpoint than its bound.
 *   settling   the provider has ended; its charge becomes durable, and [DONE] follows it.
 *   closed     by [DONE], by an error frame, or because the client went away.
 *
 * opening → relaying by the first event and its checkpoint; opening → closed by a failure or the client;
 * relaying → settling by the provider's end, or its silence behind all of it; relaying → closed by a failure,
 * a timeout or the client (what came is charged); settling → closed by the charge or the total timeout.
 */

import type { Candidate } from "../../calls/routing/plan-route.ts";
import { type GatewayError, stopping } from "../../lib/errors.ts";
import type { ChatStreamCall, ChatStreamDependencies } from "./chat-stream-call.ts";
import { StreamAttempts } from "./stream-attempts.ts";
import type { StreamCharge } from "./stream-charge.ts";
import { chargedEnding } from "./stream-ending.ts";
import {
  asStreamError,
  endedWithoutReason,
  providerSilent,
  requestTooLong,
} from "./stream-errors.ts";
import { StreamOpening } from "./stream-opening.ts";
import { StreamOutput } from "./stream-output.ts";
import type { StreamRelay } from "./stream-relay.ts";
import type { Ticking } from "./stream-ticker.ts";
import { Transcript } from "./transcript.ts";

export class ChatStream implements Ticking, EventListenerObject {
  older: Ticking | undefined;
  newer: Ticking | undefined;
  readonly #dependencies: ChatStreamDependencies;
  readonly #call: ChatStreamCall;
  readonly #attempts: StreamAttempts;
  readonly #startedMs: number;
  readonly #output: StreamOutput;
  readonly #transcript: Transcript | undefined;
  readonly #opening: StreamOpening;
  #opened: Promise<void> | undefined;
  #finishing: Promise<void> | undefined;
  #isClosed = false;
  #isGone = false;
  #isSettling = false;
  #isWhole = false;
  /** Something of the answer has left. */
  #hasDelivered = false;
  /** Waiting for a piece of the provider's stream, which ends when that is cancelled. */
  #isReading = false;

  constructor(dependencies: ChatStreamDependencies, call: ChatStreamCall) {
    this.#dependencies = dependencies;
    this.#call = call;
    this.#attempts = new StreamAttempts(call, dependencies.calls);
    this.#startedMs = dependencies.steadyClock.nowMs();
    this.#transcript = call.store && new Transcript();
    this.#output = new StreamOutput(this.#startedMs, this.#transcript);
    this.#opening = new StreamOpening(dependencies, call, this.#attempts, this.#startedMs, () =>
      this.#detach(),
    );
    call.log.isDeferred = true;
    call.clientSignal.addEventListener("abort", this);
    dependencies.ticker.add(this);
    // A client that has already gone is not reported again.
    if (call.clientSignal.aborted) this.#clientGone();
  }

  /** The candidate that answers, once it is known. */
  get candidate(): Candidate | undefined {
    return this.#opening.relay?.candidate;
  }

  /** What was tried so far. */
  get trail(): readonly string[] {
    return this.#attempts.tries.trail;
  }

  get postponed(): readonly string[] {
    return this.#attempts.tries.postponed;
  }

  get left(): readonly string[] {
    return this.#attempts.tries.left;
  }

  /** Resolves when the first event may leave. Rejects, with everything released, where none ever will. */
  open(): Promise<void> {
    this.#opened ??= this.#opening.run();
    return this.#opened;
  }

  body(): ReadableStream<Uint8Array> {
    return this.#output.body(
      () => this.#pull(),
      () => this.#clientGone(),
    );
  }

  tick(nowMs: number): void {
    const { keepaliveMs, firstTokenTimeoutMs, idleTimeoutMs, totalTimeoutMs } = this.#dependencies;
    const { relay, checkpoints } = this.#opening;
    const silentMs = nowMs - (relay?.readingSinceMs ?? nowMs);
    if (nowMs - this.#startedMs >= totalTimeoutMs) {
      this.#opening.giveUp(this.#expire(requestTooLong()));
    } else if (silentMs >= idleTimeoutMs) this.#expire(providerSilent());
    this.#attempts.expire(nowMs, firstTokenTimeoutMs);
    checkpoints?.tick(nowMs);
    if (this.#output.hasBody && nowMs - this.#output.lastWriteMs >= keepaliveMs) {
      this.#write(Buffer.from(": keepalive\n\n"));
    }
  }

  /** The client's signal has aborted. */
  handleEvent(): void {
    this.#clientGone();
  }

  cutShort(): void {
    this.#expire(stopping());
  }

  /**
   * A stream that opens may have a durable checkpoint before its first byte leaves: an instance that declares this
   * one dead charges that. A client that left pays for what was produced.
   */
  noteUndelivered(): void {
    const { checkpoints, charge } = this.#opening;
    if (checkpoints !== undefined && !this.#hasDelivered && !this.#isGone)
      charge!.noteUndelivered();
  }

  async #pull(): Promise<void> {
    try {
      if (!this.#opening.isDone) await this.open();
      const relay = this.#opening.relay!;
      while (!this.#isClosed) {
        if (relay.pendingBytes > 0) {
          const delivered = this.#deliver(relay);
          if (delivered !== undefined) await delivered;
          return;
        }
        const reading = relay.read();
        this.#isReading = reading instanceof Promise;
        const isMore = reading instanceof Promise ? await reading : reading;
        this.#isReading = false;
        if (!isMore && !this.#isClosed) return await this.#finishOnce();
      }
    } catch (error) {
      this.#isReading = false;
      await this.#fail(error);
    }
  }

  /** At once, where nothing has to be waited for. */
  #deliver(relay: StreamRelay): Promise<void> | undefined {
    const { outputTokens } = relay.rewriter;
    const output = relay.takeOutput();
    const admitted = this.#opening.checkpoints!.admit(outputTokens);
    if (admitted !== undefined) return this.#deliverBehind(admitted, output);
    // An instance that declares this one dead bills the last checkpoint: nothing may leave after that.
    const current = this.#dependencies.whenCurrent();
    if (current !== undefined) return this.#deliverBehind(current, output);
    this.#hasDelivered = true;
    this.#write(output);
    return undefined;
  }

  async #deliverBehind(admitted: Promise<void>, output: Uint8Array): Promise<void> {
    await admitted;
    const current = this.#dependencies.whenCurrent();
    if (current !== undefined) await current;
    this.#hasDelivered = true;
    this.#write(output);
  }

  #finishOnce(): Promise<void> {
    const { relay, charge } = this.#opening;
    this.#finishing ??= this.#finish(relay!, charge!);
    return this.#finishing;
  }

  async #finish(relay: StreamRelay, charge: StreamCharge): Promise<void> {
    try {
      if (!relay.rewriter.hasFinished) throw endedWithoutReason();
      relay.end(true);
      this.#isSettling = true;
      const ending = await chargedEnding(this.#call, relay, charge, this.#transcript);
      this.#isWhole = true;
      if (this.#isClosed) return;
      this.#hasDelivered = true;
      this.#write(ending);
      this.#close();
    } catch (error) {
      await this.#fail(error);
    }
  }

  /**
   * After the first byte a failure is sent in the stream, which then ends without [DONE]. Its charge comes
   * first, unless the stream's time is up before: then it follows, however long it takes.
   */
  async #fail(thrown: unknown): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const error = this.#attempts.failure ?? asStreamError(thrown, this.trail);
    this.#call.log.errorCode = error.code;
    this.#dependencies.onError(error.cause ?? error, this.#call.requestId);
    const isOwed = this.#opening.isDone && !this.#isSettling;
    if (isOwed && this.#attempts.failure === undefined) await this.#opening.charge!.awaitUsage();
    this.#attempts.abort.abort();
    this.#opening.relay?.end(false);
    if (isOwed) {
      this.#isSettling = true;
      await this.#opening.charge!.settleInTime(this.#dependencies.totalTimeoutMs);
    }
    await this.#call.free?.();
    this.#isClosed = false;
    this.#write(Buffer.from(this.#call.errorFrame(error), "latin1"));
    this.#close();
  }

  /** The client went away: the provider is stopped at once, and what it had produced is charged. */
  #clientGone(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#isGone = true;
    this.#call.log.status = 499;
    this.#call.log.errorCode = "client_closed_request";
    const { relay, charge, isUnderWay, isDone } = this.#opening;
    this.#opening.abandon();
    relay?.end(true);
    const isOwed = isDone && !this.#isSettling;
    this.#isSettling ||= isOwed;
    const stopProvider = () => {
      this.#attempts.abort.abort();
      relay?.cancel();
    };
    if (!isOwed) stopProvider();
    // What is still opening sees that it is abandoned, and ends itself.
    if (isUnderWay) return;
    const settled = isOwed ? charge!.settleLeft(stopProvider) : Promise.resolve();
    void settled.finally(() => this.#detach());
  }

  /** Ends it as a whole one where nothing is missing but word of the end, which some providers never send. */
  #endAnswered(): boolean {
    const { relay, isDone } = this.#opening;
    if (!isDone || this.#isClosed || this.#finishing || !relay!.callOff()) return false;
    // Who waits for the provider finds its stream at its end.
    if (!this.#isReading) void this.#finishOnce();
    return true;
  }

  /** Ends the stream because of the failure, or of an earlier one, which it returns then. */
  #expire(failure: GatewayError): GatewayError {
    const earlier = this.#attempts.failure;
    if (earlier !== undefined) return earlier;
    if (this.#endAnswered()) return failure;
    this.#attempts.fail(failure);
    const { relay, isUnderWay } = this.#opening;
    relay?.cancel();
    // If nothing awaits the provider, nothing else would end the stream.
    if (!isUnderWay && !this.#isReading) void this.#fail(failure);
    return failure;
  }

  #write(output: Uint8Array): void {
    if (!this.#isClosed) this.#output.write(output, this.#dependencies.steadyClock.nowMs());
  }

  #close(): void {
    this.#isClosed = true;
    this.#detach();
    this.#output.close();
  }

  #detach(): void {
    this.#dependencies.ticker.remove(this);
    this.#call.clientSignal.removeEventListener("abort", this);
    const { finish } = this.#call.log;
    this.#call.log.finish = undefined;
    if (!this.#isWhole) void this.#call.free?.();
    finish?.();
  }
}
