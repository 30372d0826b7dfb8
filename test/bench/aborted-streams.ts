import type { Database } from "../../db/client.ts";
import { median } from "./compare.ts";
import type { Driver, Target } from "./driver.ts";
import { readUsage, resetPeak } from "./process-usage.ts";
import type { AbortedStreams } from "./results.ts";
import { countOpenStreams } from "./upstream-address.ts";

const CONNECTIONS = 64;
const CALM_MS = 2_000;
const SETTLE_TIMEOUT_MS = 30_000;
/** The collector of an idle process takes its time. */
const MEMORY_PAUSE_MS = 10_000;
const POLL_MS = 50;
const SAMPLE_MS = 250;
const SAMPLES = 5;

export interface AbortedStreamsOptions {
  readonly driver: Driver;
  readonly gateway: Target;
  readonly upstreamPort: number;
  readonly sql: Database;
  readonly streams: number;
}

/** Memory before and after clients that went away in the middle of their streams. */
export async function measureAbortedStreams(
  options: AbortedStreamsOptions,
): Promise<AbortedStreams> {
  const { driver, gateway, streams } = options;
  await Bun.sleep(CALM_MS);
  const beforeMb = await residentMb(gateway.pid);
  resetPeak(gateway.pid);
  const { aborted, tookMs } = await driver.abort(gateway, streams, CONNECTIONS);
  const { settledMs, leftHolds } = await untilSettled(options);
  const { peakMb } = readUsage(gateway.pid);
  return {
    count: aborted,
    tookMs,
    beforeMb,
    peakMb,
    afterMb: await memoryAfterPause(gateway.pid, beforeMb),
    settledMs,
    leftHolds,
    leftAtUpstream: await countOpenStreams(options.upstreamPort),
  };
}

async function untilSettled({ gateway, sql }: AbortedStreamsOptions) {
  const startedMs = performance.now();
  for (;;) {
    const [row] = await sql<{ left: bigint }[]>`SELECT count(*) AS left FROM attempts`;
    const leftHolds = Math.max(Number(row?.left), await heldOf(gateway.port));
    const settledMs = performance.now() - startedMs;
    if (leftHolds === 0 || settledMs > SETTLE_TIMEOUT_MS) return { settledMs, leftHolds };
    await Bun.sleep(POLL_MS);
  }
}

/** Holds that the gateway has neither settled nor released, by its own account. */
async function heldOf(port: number): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  return Number(/^gateway_holds_outstanding (\d+)/m.exec(text)?.[1] ?? Number.NaN);
}

async function memoryAfterPause(pid: number, enoughMb: number): Promise<number> {
  const deadlineMs = performance.now() + MEMORY_PAUSE_MS;
  let foundMb = await residentMb(pid);
  while (foundMb > enoughMb && performance.now() < deadlineMs) foundMb = await residentMb(pid);
  return foundMb;
}

async function residentMb(pid: number): Promise<number> {
  const samples: number[] = [];
  while (samples.length < SAMPLES) {
    samples.push(readUsage(pid).residentMb);
    await Bun.sleep(SAMPLE_MS);
  }
  return median(samples);
}
