import type { Comparison } from "./compare.ts";
import type { LedgerCheck } from "./ledger-check.ts";

/** Everything that a run found out; what was not asked for is absent. */
export interface BenchResults {
  readonly machine: string;
  readonly database: string;
  readonly rounds: number;
  readonly measureMs: number;
  readonly firstStartMs: number;
  readonly laterStartMs?: number | undefined;
  readonly rows: readonly Comparison[];
  readonly manyKeys?: ManyKeys | undefined;
  readonly aborts?: AbortedStreams | undefined;
  readonly clustered?: ClusteredGateways | undefined;
  readonly ledger: LedgerCheck;
  readonly answers: number;
  readonly wrongAnswers: number;
  readonly firstWrong?: string | undefined;
  readonly tookMs: number;
}

export interface GroupMeasurement {
  /** Of all of them together. */
  readonly ratePerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuMicros: number;
  /** To a single-node gateway, measured in turn; 1 for itself. */
  readonly rateRatio: number;
  readonly cpuRatio: number;
}

/** Chat at a single-node gateway, and at gateways that share a database and a Redis. */
export interface ClusteredGateways {
  readonly singleNode: GroupMeasurement;
  readonly one: GroupMeasurement;
  readonly three: GroupMeasurement;
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
  /** From the last disconnect until nothing is held, or until the wait ended. */
  readonly settledMs: number;
  /** Money that then is still held, by number of requests; there must be none. */
  readonly leftHolds: number;
  /** Streams that the provider still sends; a disconnect has to reach it. */
  readonly leftAtUpstream: number;
}
