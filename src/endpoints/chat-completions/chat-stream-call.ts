import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { CallDependencies } from "../../calls/routing/call-candidates.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { Clock } from "../../lib/clock.ts";
import type { GatewayError } from "../../lib/errors.ts";
import type { Usage } from "../../lib/usage.ts";
import type { ChatBody } from "../../providers/chat-body.ts";
import type { ChargeDependencies, ChargedCall } from "./stream-charge.ts";
import type { StreamTicker } from "./stream-ticker.ts";

/** What all streams of the gateway share. */
export interface ChatStreamDependencies extends ChargeDependencies {
  readonly calls: CallDependencies;
  readonly ticker: StreamTicker;
  /** Measures time spans; monotonic. */
  readonly steadyClock: Clock;
  readonly keepaliveMs: number;
  readonly firstTokenTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly totalTimeoutMs: number;
  /** Undefined while no instance can have declared this one dead; else resolves when that is certain again. */
  whenCurrent(): Promise<void> | undefined;
}

/** What one stream is asked for. */
export interface ChatStreamCall extends ChargedCall {
  readonly candidates: readonly Candidate[];
  readonly includeUsage: boolean;
  /** How many answers were asked for. */
  readonly choices: number;
  readonly hidesReasoning: boolean;
  providerBody(candidate: Candidate): ChatBody;
  /** The bytes of the last chunk, which brings the usage. */
  usageChunk(usage: Usage, costNano: bigint, created: number, candidate: Candidate): string;
  errorFrame(error: GatewayError): string;
  readonly clientSignal: AbortSignal;
  /** Keeps the whole stream under its idempotency key; null where it was too large to be kept. */
  readonly store?: ((bytes: Uint8Array | null) => StatementEffect) | undefined;
  /**
   * Called where the stream ends in any other way than whole: errors and disconnects free the key. An error
   * is sent once this resolves.
   */
  readonly free?: (() => Promise<void>) | undefined;
}
