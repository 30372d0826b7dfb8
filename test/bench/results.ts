import type { Comparison } from "./compare.ts";
import type { LedgerCheck } from "./ledger-check.ts";

/** Everything that a run found out; what was not asked for is absent. */
export interface BenchResults {
  readonly machine: string;
  readonly database: string;
  readonly rounds: number;
  readonly measureMs: number;
  /** Of one small durable insert. */
  readonly commitMs: number;
  readonly firstStartMs: number;
  readonly laterStartMs?: number;
  readonly rows: readonly Comparison[];
  readonly delayed?: DelayedCommits;
  readonly manyKeys?: ManyKeys;
  readonly aborts?: AbortedStreams;
  readonly several?: SeveralInstances | undefined;
  readonly ledger: LedgerCheck;
  readonly answers: number;
  readonly wrongAnswers: number;
  readonly firstWrong?: string | undefined;
  readonly tookMs: number;
}

export interface DelayedCommits {
  readonly commitMs: number;
  readonly rows: readonly Comparison[];
}

export interface SeveralMeasurement {
  /** Of all of them together. */
  readonly ratePerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuMicrosPerRequest: number;
}

/** Chat at gateways that share a database and a Redis, in comparison. */
export interface SeveralInstances {
  /** Without a Redis. */
  readonly alone: SeveralMeasurement;
  /** One of several, the only one there is. */
  readonly shared: SeveralMeasurement;
  readonly sharedRatio: number;
  /** One of three that are there, and all of them. */
  readonly one: SeveralMeasurement;
  readonly three: SeveralMeasurement;
  readonly threeRatio: number;
  /** What was wrong with their ledgers or their answers. */
  readonly findings: readonly string[];
}

export interface ManyKeys {
  readonly count: number;
  /** Requests a second while each key is seen for the first time. */
  readonly firstTouchRate: number;
  readonly oneKeyRate: number;
  readonly manyKeysRate: number;
  readonly ratio: number;
  readonly oneKeyCpuMicros: number;
  readonly manyKeysCpuMicros: number;
  readonly peakMb: number;
}

export interface AbortedStreams {
  readonly count: number;
  readonly tookMs: number;
  readonly beforeMb: number;
  readonly peakMb: number;
  readonly afterMb: number;
  /** From the last disconnect until nothing is held any more, or it was given up. */
  readonly settledMs: number;
  /** Money that then is still held, by number of requests; there must be none. */
  readonly leftHolds: number;
  /** Streams that the provider still sends; a disconnect has to reach it. */
  readonly leftAtUpstream: number;
}
