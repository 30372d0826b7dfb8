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

import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { clientClosed, GatewayError } from "../../lib/errors.ts";
import { latin1OfText } from "../../lib/event-splitter.ts";
import type { RequestFacts } from "../../lib/request-facts.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type { Usage } from "../billing/usage.ts";
import type { ChargeFigures, Hold, MoneyPort } from "../money/interface.ts";
import { type CallDependencies, callCandidates } from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";
import {
  chargeFigures,
  estimatedUsage,
  type MeteredCall,
  noteCharge,
  settlementFigures,
} from "./chat-meter.ts";
import { type StartedUpstream, startUpstream } from "./start-upstream.ts";
import { StreamCheckpoints } from "./stream-checkpoints.ts";
import type { StreamTicker, Ticking } from "./stream-ticker.ts";
import { Transcript } from "./transcript.ts";

export interface ChatStreamDependencies {
  readonly money: MoneyPort;
  readonly calls: CallDependencies;
  readonly ticker: StreamTicker;
  readonly keepaliveMs: number;
  readonly firstTokenTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly totalTimeoutMs: number;
  onError(error: unknown, requestId: string): void;
}

export interface ChatStreamCall {
  readonly requestId: string;
  readonly hold: Hold;
  readonly candidates: readonly Candidate[];
  readonly details: Record<string, unknown> | null;
  readonly includeUsage: boolean;
  /** How many answers were asked for. */
  readonly choices: number;
  readonly hidesReasoning: boolean;
  /** Tokens that are charged where the provider tells none. */
  promptTokens(candidate: Candidate): number;
  providerBody(candidate: Candidate): Record<string, unknown>;
  /** The bytes of the last chunk, which brings the usage. */
  usageChunk(usage: Usage, costNano: bigint, created: number, candidate: Candidate): string;
  errorFrame(error: GatewayError): string;
  readonly clientSignal: AbortSignal;
  readonly log: RequestFacts;
  /** Keeps the whole stream under its idempotency key; null where it was too large to be kept. */
  readonly store?: ((bytes: Uint8Array | null) => StatementEffect) | undefined;
  /** Called where the stream ends in any other way than whole: errors and disconnects free the key. */
  readonly free?: (() => void) | undefined;
}

/** Beyond this many bytes a token of the limit, a provider is not sending tokens any more. */
const MAX_BYTES_PER_TOKEN = 64;
const SPARE_OUTPUT_BYTES = 65_536;
/** What may be read before the first byte may leave. */
const MAX_AHEAD_BYTES = 65_536;
/** How long the end of a stream that failed waits for its charge, though its time is up. */
const MIN_CHARGE_WAIT_MS = 2_000;
/** How long the rest of a provider's stream may take behind its [DONE] before its connection is dropped. */
const DRAIN_MS = 1_000;

export class ChatStream implements Ticking {
  readonly #dependencies: ChatStreamDependencies;
  readonly #call: ChatStreamCall;
  readonly #abort = new AbortController();
  readonly #startedMs: number;
  #upstream:
    | (StartedUpstream & { candidate: Candidate; end(isSuccess: boolean): void })
    | undefined;
  #trail: readonly string[] = [];
  #checkpoints: StreamCheckpoints | undefined;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #pending = "";
  #opening: Promise<void> | undefined;
  #attempt: { readonly startedMs: number; expire(): void } | undefined;
  #readingSinceMs: number | undefined;
  #lastWriteMs: number;
  #failure: GatewayError | undefined;
  #isClosed = false;
  #isSettling = false;
  #isOpening = true;
  /** The first byte may leave: from here on the stream is charged, whatever becomes of it. */
  #isOpen = false;
  #isWhole = false;
  /** Waiting for a piece of the provider's stream, which ends when that is cancelled. */
  #isReading = false;
  #isReadingAhead = false;
  /** The provider had ended before anything left. */
  #isOver = false;
  #reading: ReturnType<ReadableStreamDefaultReader<Uint8Array>["read"]> | undefined;
  readonly #transcript: Transcript | undefined;

  constructor(dependencies: ChatStreamDependencies, call: ChatStreamCall) {
    this.#dependencies = dependencies;
    this.#call = call;
    this.#startedMs = dependencies.calls.clock.nowMs();
    this.#lastWriteMs = this.#startedMs;
    this.#transcript = call.store && new Transcript();
    call.log.isDeferred = true;
    call.clientSignal.addEventListener("abort", this.#clientGone);
    dependencies.ticker.add(this);
    // A client that has gone already will not be told of again.
    if (call.clientSignal.aborted) this.#clientGone();
  }

  /** The candidate that answers, once it is known. */
  get candidate(): Candidate | undefined {
    return this.#upstream?.candidate;
  }

  get trail(): readonly string[] {
    return this.#trail;
  }

  /** Resolves when the first event may leave. Rejects, with everything released, where none ever will. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  body(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => this.#pull(),
        cancel: () => {
          this.#controller = undefined;
          this.#clientGone();
        },
      },
      { highWaterMark: 0 },
    );
  }

  tick(nowMs: number): void {
    const { keepaliveMs, firstTokenTimeoutMs, idleTimeoutMs, totalTimeoutMs } = this.#dependencies;
    const silentMs = nowMs - (this.#readingSinceMs ?? nowMs);
    if (nowMs - this.#startedMs >= totalTimeoutMs) this.#expire("The request took too long.");
    else if (silentMs >= idleTimeoutMs) this.#expire("The provider fell silent.");
    if (this.#attempt && nowMs - this.#attempt.startedMs >= firstTokenTimeoutMs) {
      this.#attempt.expire();
    }
    this.#checkpoints?.tick(nowMs);
    if (nowMs - this.#lastWriteMs >= keepaliveMs) this.#write(": keepalive\n\n", nowMs);
  }

  async #open(): Promise<void> {
    const { calls, money } = this.#dependencies;
    try {
      this.#assertClient();
      const served = await callCandidates(calls, this.#call.candidates, this.#abort.signal, {
        start: (candidate) => this.#start(candidate),
        accept: (answer) => answer,
      });
      this.#trail = served.trail;
      this.#upstream = {
        ...served.answer,
        candidate: served.candidate,
        end: (isSuccess) => served.end(isSuccess),
      };
      this.#pending = served.answer.firstOutput;
      this.#call.log.firstTokenMs = calls.clock.nowMs() - this.#startedMs;
      this.#assertClient();
      this.#checkpoints = new StreamCheckpoints(calls.clock, async () => {
        await money.checkpoint(this.#call.hold, this.#charge());
      });
      await this.#coverFirstEvent(this.#checkpoints, this.#upstream.rewriter.outputTokens);
      this.#assertClient();
      this.#isOpen = true;
    } catch (thrown) {
      const error = this.#failure ?? thrown;
      this.#call.log.errorCode = error instanceof GatewayError ? error.code : "internal";
      // The provider did its part; its endpoint must not count this call as running for ever.
      this.#upstream?.end(true);
      // What a provider had produced for a client that went away is charged; otherwise nothing left here.
      if (this.#upstream !== undefined && this.#isClosed) await this.#settleQuietly(499);
      else money.release(this.#call.hold);
      this.#abort.abort();
      this.#detach();
      throw error;
    } finally {
      this.#isOpening = false;
    }
  }

  #assertClient(): void {
    if (!this.#isClosed) return;
    throw clientClosed();
  }

  /**
   * Waits for the first checkpoint and reads on meanwhile. A stream that is over by then needs none: its
   * charge is made durable instead, before anything leaves.
   */
  async #coverFirstEvent(checkpoints: StreamCheckpoints, tokens: number): Promise<void> {
    const covered = checkpoints.cover(tokens);
    covered.catch(() => {});
    this.#isReadingAhead = true;
    const isOver = await Promise.race([covered.then(() => false), this.#readAhead()]);
    this.#isReadingAhead = false;
    if (isOver) this.#isOver = true;
    else await covered;
  }

  /** True where the provider came to its end in the ordinary way. */
  async #readAhead(): Promise<boolean> {
    const { rewriter } = this.#upstream!;
    try {
      while (this.#isReadingAhead && this.#pending.length < MAX_AHEAD_BYTES) {
        if (rewriter.failure || this.#isClosed) return false;
        if (!(await this.#read())) return rewriter.hasFinished;
      }
    } catch {
      // What came before is still to be delivered; the failure shows again when reading goes on.
    }
    return false;
  }

  async #start(candidate: Candidate): Promise<StartedUpstream> {
    const { clock } = this.#dependencies.calls;
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    this.#abort.signal.addEventListener("abort", abort);
    let isExpired = false;
    this.#attempt = {
      startedMs: clock.nowMs(),
      expire: () => {
        isExpired = true;
        attempt.abort();
      },
    };
    try {
      return await startUpstream(candidate, {
        body: this.#call.providerBody(candidate),
        requestId: this.#call.requestId,
        hidesReasoning: this.#call.hidesReasoning,
        nowSeconds: Math.floor(clock.nowMs() / 1_000),
        controller: attempt,
        isExpired: () => isExpired,
      });
    } finally {
      this.#attempt = undefined;
    }
  }

  async #pull(): Promise<void> {
    try {
      await this.open();
      while (!this.#isClosed) {
        if (this.#isOver) return await this.#finish();
        if (this.#pending !== "") return await this.#deliver();
        this.#isReading = true;
        const isMore = await this.#read();
        this.#isReading = false;
        if (!isMore && !this.#isClosed) return await this.#finish();
      }
    } catch (error) {
      this.#isReading = false;
      await this.#fail(error);
    }
  }

  /** Reads one piece of the provider's stream. False when that has ended. */
  async #read(): Promise<boolean> {
    const { reader, rewriter } = this.#upstream!;
    if (rewriter.isDone) {
      drain(reader);
      return false;
    }
    if (rewriter.failure) throw rewriter.failure;
    this.#readingSinceMs = this.#dependencies.calls.clock.nowMs();
    // Reading ahead and reading on may wait for the same piece; whoever comes first takes it.
    this.#reading ??= reader.read();
    const reading = this.#reading;
    const { done, value } = await reading.catch((cause: unknown) => {
      throw new ProviderFailure("unavailable", "the provider's stream broke", { cause });
    });
    if (this.#reading !== reading) return true;
    this.#reading = undefined;
    this.#readingSinceMs = undefined;
    const output = done ? rewriter.end() : rewriter.push(value);
    this.#pending += output;
    this.#assertWithinLimit(rewriter.outputBytes);
    return !done || output !== "";
  }

  async #deliver(): Promise<void> {
    const output = this.#pending;
    this.#pending = "";
    await this.#checkpoints!.admit(this.#upstream!.rewriter.outputTokens);
    this.#write(output, this.#dependencies.calls.clock.nowMs());
  }

  async #finish(): Promise<void> {
    const { rewriter, candidate, end } = this.#upstream!;
    if (!rewriter.hasFinished) {
      throw new GatewayError(
        "provider_error",
        "The provider's stream ended without a finish reason.",
      );
    }
    end(true);
    this.#isSettling = true;
    const { includeUsage, usageChunk, store } = this.#call;
    const usage = this.#usage();
    const costNano = this.#charge().chargeNano;
    const last = includeUsage ? usageChunk(usage, costNano, rewriter.created, candidate) : "";
    const ending = `${this.#pending}${last}data: [DONE]\n\n`;
    await this.#settle(200, store?.(this.#transcript?.bytes(ending) ?? null));
    this.#isWhole = true;
    if (this.#isClosed) return;
    this.#write(ending, this.#dependencies.calls.clock.nowMs());
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
    this.#abort.abort();
    this.#upstream?.end(false);
    if (this.#isOpen && !this.#isSettling) {
      this.#isSettling = true;
      await this.#withinItsTime(this.#settleQuietly(200));
    }
    this.#isClosed = false;
    this.#write(this.#call.errorFrame(error), this.#dependencies.calls.clock.nowMs());
    this.#close();
  }

  async #withinItsTime(charge: Promise<void>): Promise<void> {
    const { calls, totalTimeoutMs } = this.#dependencies;
    const leftMs = this.#startedMs + totalTimeoutMs - calls.clock.nowMs();
    let cancelTimer: (() => void) | undefined;
    const timeIsUp = new Promise<void>((resolve) => {
      cancelTimer = calls.clock.after(Math.max(leftMs, MIN_CHARGE_WAIT_MS), resolve);
    });
    await Promise.race([charge, timeIsUp]);
    cancelTimer?.();
  }

  /** The client went away: the provider is stopped at once, and what it had produced is charged. */
  readonly #clientGone = (): void => {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#call.log.status = 499;
    this.#call.log.errorCode = "client_closed_request";
    this.#abort.abort();
    this.#upstream?.reader.cancel().catch(() => {});
    this.#upstream?.end(true);
    // A stream that is still opening sees that it is closed, and ends itself.
    if (this.#isOpening) return;
    const isOwed = this.#isOpen && !this.#isSettling;
    this.#isSettling ||= isOwed;
    const settled = isOwed ? this.#settleQuietly(499) : Promise.resolve();
    void settled.finally(() => this.#detach());
  };

  #expire(message: string): void {
    if (this.#failure) return;
    this.#failure = new GatewayError("provider_timeout", message);
    this.#abort.abort();
    this.#upstream?.reader.cancel().catch(() => {});
    // Where nobody waits for the provider, nobody else would end the stream.
    if (!this.#isOpening && !this.#isReading) void this.#fail(this.#failure);
  }

  /** Charges what the provider reports, or what was seen of its answer. */
  async #settle(status: 200 | 499, also?: StatementEffect): Promise<void> {
    const { log, hold } = this.#call;
    const figures = this.#charge();
    noteCharge(log, figures);
    await this.#dependencies.money.settle(hold, settlementFigures(figures, status), also);
  }

  #charge(): ChargeFigures {
    return chargeFigures(this.#metered(), this.#usage());
  }

  async #settleQuietly(status: 200 | 499): Promise<void> {
    try {
      await this.#settle(status);
    } catch (error) {
      this.#dependencies.onError(error, this.#call.requestId);
    }
  }

  #usage(): Usage {
    const { rewriter, candidate } = this.#upstream!;
    return (
      rewriter.usage ?? estimatedUsage(this.#call.promptTokens(candidate), rewriter.outputTokens)
    );
  }

  #metered(): MeteredCall {
    const { candidate } = this.#upstream!;
    return {
      hold: this.#call.hold,
      model: candidate.model,
      providerId: candidate.providerId,
      latencyMs: this.#dependencies.calls.clock.nowMs() - this.#startedMs,
      details: this.#call.details,
    };
  }

  #assertWithinLimit(outputBytes: number): void {
    const { hold, choices } = this.#call;
    const limit = hold.outputTokens * choices * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES;
    if (outputBytes > limit) {
      throw new GatewayError("provider_error", "The provider went on beyond its limit of tokens.");
    }
  }

  #write(output: string, nowMs: number): void {
    if (this.#isClosed || this.#controller === undefined || output === "") return;
    this.#lastWriteMs = nowMs;
    this.#transcript?.add(output);
    this.#controller.enqueue(Buffer.from(output, "latin1"));
  }

  #close(): void {
    this.#isClosed = true;
    this.#detach();
    this.#controller?.close();
  }

  #detach(): void {
    this.#dependencies.ticker.remove(this);
    this.#call.clientSignal.removeEventListener("abort", this.#clientGone);
    const { finish } = this.#call.log;
    this.#call.log.finish = undefined;
    if (!this.#isWhole) this.#call.free?.();
    finish?.();
  }
}

function asStreamError(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  if (thrown instanceof ProviderFailure) {
    return new GatewayError("provider_error", "The provider's stream broke.", { cause: thrown });
  }
  return new GatewayError("internal", "Something went wrong inside the gateway.", {
    cause: thrown,
  });
}

/** Reads a stream to its end in the background, so that its connection can be used again. */
function drain(reader: ReadableStreamDefaultReader<Uint8Array>): void {
  const timer = setTimeout(() => reader.cancel().catch(() => {}), DRAIN_MS);
  void (async () => {
    try {
      while (!(await reader.read()).done);
    } catch {
      // A connection that breaks behind its [DONE] has said everything.
    } finally {
      clearTimeout(timer);
    }
  })();
}

/** A frame of the stream, as bytes kept as characters. */
export function frameOf(value: unknown): string {
  return `data: ${latin1OfText(JSON.stringify(value))}\n\n`;
}
