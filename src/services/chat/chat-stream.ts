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
 * relaying → settling by the provider's end; relaying → closed by a failure, a timeout or the client (what
 * was delivered is charged); settling → closed by the durable charge or the total timeout.
 */

import { clientClosed, GatewayError, stopping } from "../../lib/errors.ts";
import { withinTime } from "../../lib/within-time.ts";
import { callCandidates } from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";
import type { ChatStreamCall, ChatStreamDependencies } from "./chat-stream-call.ts";
import { readAheadUntil } from "./read-ahead.ts";
import { StreamAttempts } from "./stream-attempts.ts";
import { StreamCharge } from "./stream-charge.ts";
import { StreamCheckpoints } from "./stream-checkpoints.ts";
import {
  asStreamError,
  endedWithoutReason,
  providerSilent,
  requestTooLong,
} from "./stream-errors.ts";
import { StreamOutput } from "./stream-output.ts";
import { StreamRelay } from "./stream-relay.ts";
import type { Ticking } from "./stream-ticker.ts";
import { Transcript } from "./transcript.ts";

const MAX_BYTES_PER_TOKEN = 64;
const SPARE_OUTPUT_BYTES = 65_536;
/** What may be read before the first byte may leave. */
const MAX_AHEAD_BYTES = 65_536;
/** How long the end of a stream that failed waits for its charge, though its time is up. */
const MIN_CHARGE_WAIT_MS = 2_000;

export class ChatStream implements Ticking, EventListenerObject {
  readonly #dependencies: ChatStreamDependencies;
  readonly #call: ChatStreamCall;
  readonly #attempts: StreamAttempts;
  readonly #startedMs: number;
  readonly #output: StreamOutput;
  readonly #transcript: Transcript | undefined;
  #relay: StreamRelay | undefined;
  #charge: StreamCharge | undefined;
  #checkpoints: StreamCheckpoints | undefined;
  #opening: Promise<void> | undefined;
  #finishing: Promise<void> | undefined;
  #failure: GatewayError | undefined;
  #isClosed = false;
  #isGone = false;
  #isSettling = false;
  #isOpening = true;
  /** The first byte may leave: from here on the stream is charged, whatever becomes of it. */
  #isOpen = false;
  #isWhole = false;
  /** Something of the answer has left. */
  #hasDelivered = false;
  /** Waiting for a piece of the provider's stream, which ends when that is cancelled. */
  #isReading = false;
  /** The provider had ended before anything left. */
  #isOver = false;
  /** Ends the wait for the database while the stream opens. */
  #giveUpOpening: ((failure: GatewayError) => void) | undefined;
  #hasGivenUp = false;
  /** Why the charge of all of it was not written. */
  #unwritten: unknown;

  constructor(dependencies: ChatStreamDependencies, call: ChatStreamCall) {
    this.#dependencies = dependencies;
    this.#call = call;
    this.#attempts = new StreamAttempts(call, dependencies.calls.clock, dependencies.steadyClock);
    this.#startedMs = dependencies.steadyClock.nowMs();
    this.#transcript = call.store && new Transcript();
    this.#output = new StreamOutput(this.#startedMs, this.#transcript);
    call.log.isDeferred = true;
    call.clientSignal.addEventListener("abort", this);
    dependencies.ticker.add(this);
    // A client that has gone already will not be told of again.
    if (call.clientSignal.aborted) this.#clientGone();
  }

  /** The candidate that answers, once it is known. */
  get candidate(): Candidate | undefined {
    return this.#relay?.candidate;
  }

  get trail(): readonly string[] {
    return this.#relay?.trail ?? [];
  }

  /** Resolves when the first event may leave. Rejects, with everything released, where none ever will. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /**
   * The same, and where the provider has ended before anything may leave, waits for the charge too:
   * then all of the stream may leave at once, and `whole` has it. Rejects where it cannot be written.
   */
  async openOrFinish(): Promise<void> {
    await this.open();
    if (!this.#isOver) return;
    await this.#finishOnce();
    if (this.#isGone) throw clientClosed();
    // Nothing has left: what kept the charge from being written has a status of its own.
    if (this.#unwritten !== undefined && !this.#output.hasBody) throw this.#unwritten;
  }

  /** Everything, where the stream was closed before its body was asked for: it needs none then. */
  whole(): Uint8Array | undefined {
    return this.#output.whole();
  }

  body(): ReadableStream<Uint8Array> {
    return this.#output.body(
      () => this.#pull(),
      () => this.#clientGone(),
    );
  }

  tick(nowMs: number): void {
    const { keepaliveMs, firstTokenTimeoutMs, idleTimeoutMs, totalTimeoutMs } = this.#dependencies;
    const silentMs = nowMs - (this.#relay?.readingSinceMs ?? nowMs);
    if (nowMs - this.#startedMs >= totalTimeoutMs) {
      this.#expire(requestTooLong());
      this.#giveUpOpening?.(this.#failure!);
    } else if (silentMs >= idleTimeoutMs) this.#expire(providerSilent());
    this.#attempts.expire(nowMs, firstTokenTimeoutMs);
    this.#checkpoints?.tick(nowMs);
    if (this.#output.hasBody && nowMs - this.#output.lastWriteMs >= keepaliveMs) {
      this.#write(": keepalive\n\n");
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
   * Of a stream that opens a checkpoint may be durable before its first byte leaves: whoever takes this
   * instance for dead charges that. A client that left has what was produced charged.
   */
  noteUndelivered(): void {
    if (this.#hasDelivered || this.#isGone || this.#checkpoints === undefined) return;
    // What is kept under an idempotency key is delivered when it is asked for again.
    if (this.#call.store === undefined) this.#dependencies.notes.add(this.#call.hold);
  }

  async #open(): Promise<void> {
    const { calls, money, steadyClock } = this.#dependencies;
    this.#call.hold.confirmed?.catch((error: GatewayError) => {
      this.#failure ??= error;
      this.#attempts.abort.abort();
    });
    try {
      this.#assertClient();
      const attempts = this.#attempts;
      const served = await callCandidates(calls, this.#call.candidates, attempts.abort, attempts);
      const relay = new StreamRelay(served, this.#outputLimitBytes(), () => this.#nowMs());
      this.#relay = relay;
      const charge = new StreamCharge(this.#dependencies, this.#call, relay, () =>
        this.#elapsedMs(),
      );
      this.#charge = charge;
      this.#call.log.firstTokenMs = this.#elapsedMs();
      this.#assertClient();
      this.#checkpoints = new StreamCheckpoints(steadyClock, () => charge.checkpoint());
      // Where all of it has come by now, its charge stands for a checkpoint.
      this.#isOver = relay.readArrived(MAX_AHEAD_BYTES);
      const { confirmed } = this.#call.hold;
      if (!this.#isOver) await this.#inTime(this.#coverFirstEvent(this.#checkpoints, relay));
      else if (confirmed !== undefined) await this.#inTime(confirmed);
      this.#assertClient();
      this.#isOpen = true;
    } catch (thrown) {
      const error = this.#failure ?? thrown;
      this.#call.log.errorCode = error instanceof GatewayError ? error.code : "internal";
      // The provider did its part; its endpoint must not count this call as running for ever.
      this.#relay?.end(true);
      // What a provider had produced for a client that went away is charged; otherwise nothing left here.
      if (this.#charge !== undefined && this.#isClosed) await this.#settleQuietly(499);
      // A checkpoint may yet come to stand there: what ends it is written behind it, and nobody waits.
      else if (this.#hasGivenUp && this.#checkpoints?.isWriting) {
        this.noteUndelivered();
        void this.#waiveQuietly();
      } else money.release(this.#call.hold);
      this.#attempts.abort.abort();
      this.#detach();
      throw error;
    } finally {
      this.#isOpening = false;
    }
  }

  /** Rejects where the stream's time is up before. */
  async #inTime(waiting: Promise<void>): Promise<void> {
    const { promise: timeIsUp, reject } = Promise.withResolvers<never>();
    this.#giveUpOpening = (failure) => {
      this.#hasGivenUp = true;
      reject(failure);
    };
    try {
      await Promise.race([waiting, timeIsUp]);
    } finally {
      this.#giveUpOpening = undefined;
    }
  }

  #assertClient(): void {
    if (!this.#isClosed) return;
    throw clientClosed();
  }

  async #coverFirstEvent(checkpoints: StreamCheckpoints, relay: StreamRelay): Promise<void> {
    const covered = checkpoints.cover(relay.rewriter.outputTokens);
    const mayReadOn = () => !this.#isClosed;
    this.#isOver = await readAheadUntil(covered, relay, MAX_AHEAD_BYTES, mayReadOn);
    await (this.#isOver ? this.#call.hold.confirmed : covered);
  }

  async #pull(): Promise<void> {
    try {
      await this.open();
      const relay = this.#relay!;
      while (!this.#isClosed) {
        if (this.#isOver) return await this.#finishOnce();
        if (relay.pendingBytes > 0) return await this.#deliver(relay);
        this.#isReading = true;
        const isMore = await relay.read();
        this.#isReading = false;
        if (!isMore && !this.#isClosed) return await this.#finishOnce();
      }
    } catch (error) {
      this.#isReading = false;
      await this.#fail(error);
    }
  }

  async #deliver(relay: StreamRelay): Promise<void> {
    const { outputTokens } = relay.rewriter;
    const output = relay.takeOutput();
    await this.#checkpoints!.admit(outputTokens);
    // Whoever takes this instance for dead bills the last checkpoint: nothing may leave after that.
    const current = this.#dependencies.whenCurrent();
    if (current !== undefined) await current;
    this.#hasDelivered = true;
    this.#write(output);
  }

  #finishOnce(): Promise<void> {
    this.#finishing ??= this.#finish(this.#relay!, this.#charge!).catch((error) => {
      if (this.#isSettling) this.#unwritten = error;
      return this.#fail(error);
    });
    return this.#finishing;
  }

  async #finish(relay: StreamRelay, charge: StreamCharge): Promise<void> {
    const { rewriter, candidate } = relay;
    if (!rewriter.hasFinished) throw endedWithoutReason();
    relay.end(true);
    this.#isSettling = true;
    const { includeUsage, usageChunk, store } = this.#call;
    const usage = charge.usage();
    const figures = charge.figures(usage);
    const last = includeUsage
      ? usageChunk(usage, figures.chargeNano, rewriter.created, candidate)
      : "";
    const ending = `${relay.takeOutput()}${last}data: [DONE]\n\n`;
    await charge.settle(200, figures, store?.(this.#transcript?.bytes(ending) ?? null));
    this.#isWhole = true;
    if (this.#isClosed) return;
    this.#hasDelivered = true;
    this.#write(ending);
    this.#close();
  }

  /**
   * After the first byte a failure is told in the stream, which then ends without [DONE]. Its charge comes
   * first, unless the stream's time is up before: then it follows, however long it takes.
   */
  async #fail(thrown: unknown): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const error = this.#failure ?? asStreamError(thrown);
    this.#call.log.errorCode = error.code;
    this.#dependencies.onError(error.cause ?? error, this.#call.requestId);
    this.#attempts.abort.abort();
    this.#relay?.end(false);
    if (this.#isOpen && !this.#isSettling) {
      this.#isSettling = true;
      const leftMs = this.#dependencies.totalTimeoutMs - this.#elapsedMs();
      await withinTime(
        this.#settleQuietly(200),
        this.#dependencies.steadyClock,
        Math.max(leftMs, MIN_CHARGE_WAIT_MS),
      );
    }
    await this.#call.free?.();
    this.#isClosed = false;
    this.#write(this.#call.errorFrame(error));
    this.#close();
  }

  /** The client went away: the provider is stopped at once, and what it had produced is charged. */
  #clientGone(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#isGone = true;
    this.#call.log.status = 499;
    this.#call.log.errorCode = "client_closed_request";
    this.#attempts.abort.abort();
    this.#relay?.cancel();
    this.#relay?.end(true);
    // A stream that is still opening sees that it is closed, and ends itself.
    if (this.#isOpening) return;
    const isOwed = this.#isOpen && !this.#isSettling;
    this.#isSettling ||= isOwed;
    const settled = isOwed ? this.#settleQuietly(499) : Promise.resolve();
    void settled.finally(() => this.#detach());
  }

  #expire(failure: GatewayError): void {
    if (this.#failure) return;
    this.#failure = failure;
    this.#attempts.abort.abort();
    this.#relay?.cancel();
    // Where nobody waits for the provider, nobody else would end the stream.
    if (!this.#isOpening && !this.#isReading) void this.#fail(this.#failure);
  }

  #settleQuietly(status: 200 | 499): Promise<void> {
    return this.#charge!.settle(status).catch((error) =>
      this.#dependencies.onError(error, this.#call.requestId),
    );
  }

  #waiveQuietly(): Promise<void> {
    const { notes, onError } = this.#dependencies;
    const { requestId } = this.#call;
    return this.#charge!.waive().then(
      () => notes.remove(requestId),
      (error) => onError(error, requestId),
    );
  }

  /** Beyond this a provider is not sending tokens of its limit any more. */
  #outputLimitBytes(): number {
    const { hold, choices } = this.#call;
    return hold.outputTokens * choices * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES;
  }

  #nowMs(): number {
    return this.#dependencies.steadyClock.nowMs();
  }

  #elapsedMs(): number {
    return this.#nowMs() - this.#startedMs;
  }

  #write(output: string): void {
    if (!this.#isClosed) this.#output.write(output, this.#nowMs());
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
