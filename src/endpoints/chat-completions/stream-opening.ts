import { asUnavailable } from "../../../db/unavailable.ts";
import { clientClosed, GatewayError } from "../../lib/errors.ts";
import type { ChatStreamCall, ChatStreamDependencies } from "./chat-stream-call.ts";
import type { StartedUpstream } from "./start-upstream.ts";
import type { StreamAttempts } from "./stream-attempts.ts";
import { StreamCharge } from "./stream-charge.ts";
import { StreamCheckpoints } from "./stream-checkpoints.ts";
import { StreamRelay } from "./stream-relay.ts";

const MAX_BYTES_PER_TOKEN = 64;
const SPARE_OUTPUT_BYTES = 65_536;

/**
 * The beginning of a stream: a candidate is found that sends its first event, and that event's checkpoint
 * becomes durable. What the stream runs on is there as soon as it is made, for who has to end it meanwhile.
 */
export class StreamOpening {
  readonly #dependencies: ChatStreamDependencies;
  readonly #call: ChatStreamCall;
  readonly #attempts: StreamAttempts;
  readonly #startedMs: number;
  readonly #onFailed: () => void;
  relay: StreamRelay | undefined;
  charge: StreamCharge | undefined;
  checkpoints: StreamCheckpoints | undefined;
  /** Neither done nor failed. */
  isUnderWay = true;
  /** The first byte may leave: from here on the stream is charged, whatever becomes of it. */
  isDone = false;
  #isAbandoned = false;
  /** Ends the wait for the database. */
  #endWait: ((failure: GatewayError) => void) | undefined;
  #hasGivenUp = false;

  /** `onFailed` is called when everything is released, before the failure is sent. */
  constructor(
    dependencies: ChatStreamDependencies,
    call: ChatStreamCall,
    attempts: StreamAttempts,
    startedMs: number,
    onFailed: () => void,
  ) {
    this.#dependencies = dependencies;
    this.#call = call;
    this.#attempts = attempts;
    this.#startedMs = startedMs;
    this.#onFailed = onFailed;
  }

  /** Resolves when the first event may leave. Rejects, with everything released, where none ever will. */
  async run(): Promise<void> {
    const { log } = this.#call;
    try {
      this.#assertClient();
      this.#begin(await this.#attempts.run());
      log.firstTokenMs = this.#dependencies.steadyClock.nowMs() - this.#startedMs;
      this.#assertClient();
      await this.#inTime(this.#coverFirstEvent(this.relay!, this.charge!));
      this.#assertClient();
      this.isDone = true;
    } catch (thrown) {
      const error = this.#attempts.failure ?? thrown;
      log.errorCode = codeOf(error);
      await this.#release();
      this.#onFailed();
      throw error;
    } finally {
      this.isUnderWay = false;
    }
  }

  /** The client went away: the opening stream sees it at the next step. */
  abandon(): void {
    this.#isAbandoned = true;
  }

  /** The stream's time is up, and the database is not waited for any longer. */
  giveUp(failure: GatewayError): void {
    if (this.#endWait === undefined) return;
    this.#hasGivenUp = true;
    this.#endWait(failure);
  }

  #assertClient(): void {
    if (this.#isAbandoned) throw clientClosed();
  }

  #begin(started: StartedUpstream): void {
    const { steadyClock } = this.#dependencies;
    const { tries } = this.#attempts;
    const limits = { choices: this.#call.choices, maxOutputBytes: this.#outputLimitBytes() };
    const relay = new StreamRelay(started, tries, limits, steadyClock);
    this.relay = relay;
    this.charge = new StreamCharge(
      this.#dependencies,
      this.#call,
      relay,
      steadyClock,
      this.#startedMs,
    );
  }

  #coverFirstEvent(relay: StreamRelay, charge: StreamCharge): Promise<void> {
    const { steadyClock } = this.#dependencies;
    const checkpoints = new StreamCheckpoints(steadyClock, () => charge.checkpoint());
    this.checkpoints = checkpoints;
    return checkpoints.cover(relay.rewriter.outputTokens);
  }

  /** Rejects where the stream's time is up before. */
  async #inTime(waiting: Promise<void>): Promise<void> {
    const { promise: timeIsUp, reject } = Promise.withResolvers<never>();
    this.#endWait = reject;
    try {
      await Promise.race([waiting, timeIsUp]);
    } finally {
      this.#endWait = undefined;
    }
  }

  async #release(): Promise<void> {
    // The provider did its part; its endpoint must not count this call as running without end.
    this.relay?.end(true);
    // What a provider had produced for a client that went away is charged; otherwise nothing left here.
    if (this.charge !== undefined && this.#isAbandoned) await this.charge.settleQuietly(499);
    // A checkpoint may still be written: what ends it is written after it, and no caller waits.
    else if (this.#hasGivenUp && this.checkpoints?.isWriting) void this.charge!.waiveQuietly();
    else this.#dependencies.money.release(this.#call.hold);
    this.#attempts.abort.abort();
  }

  /** Beyond this a provider is not sending tokens of its limit any more. */
  #outputLimitBytes(): number {
    const { hold, choices } = this.#call;
    return hold.outputTokens * choices * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES;
  }
}

function codeOf(error: unknown): GatewayError["code"] {
  if (error instanceof GatewayError) return error.code;
  return asUnavailable(error)?.code ?? "internal";
}
