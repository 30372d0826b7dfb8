import { expect, test } from "bun:test";
import { runSchedule, type ScheduleResult } from "./schedule.ts";

/*
 * The schedules of one run, in as many test files as there are shards, so that they run in parallel.
 * GATEWAY_SIM_SCHEDULES  how many schedules, all shards together; 1,500 unless it is set
 * GATEWAY_SIM_FIRST_SEED where to begin; 1 unless it is set
 * GATEWAY_SIM_SEED       one seed alone, with everything that happens in it printed
 * GATEWAY_SIM_LATE_REFUSALS=1  adds a fault that is left out otherwise: see planFaults
 */
const SHARDS = 4;
const SCHEDULES = Math.ceil(Number(process.env.GATEWAY_SIM_SCHEDULES ?? 1_500) / SHARDS);
const FIRST_SEED = Number(process.env.GATEWAY_SIM_FIRST_SEED ?? 1);
const ONLY_SEED = process.env.GATEWAY_SIM_SEED;
const HAS_LATE_REFUSALS = process.env.GATEWAY_SIM_LATE_REFUSALS === "1";
const TIMEOUT_MS = 3_600_000;
const TWICE = 25;

function run(seed: number, keepsTrace = false): ScheduleResult {
  return runSchedule({ seed, keepsTrace, hasLateRefusals: HAS_LATE_REFUSALS });
}

/** The message of a failing schedule: how to see it again. */
function failureOf({ seed, failure, steps }: ScheduleResult): Error {
  const message = `${failure?.message}\nafter ${steps} steps; to see it again: GATEWAY_SIM_SEED=${seed} bun test test/simulation/schedules-1.test.ts`;
  return new Error(message, { cause: failure });
}

/** Defines the tests of one shard, numbered from 1: every fourth seed. The first also replays seeds. */
export function testSchedules(shard: number): void {
  if (shard === 1) testReplays();
  test.if(ONLY_SEED === undefined)(
    `no schedule of crashes, pauses, partings, lost replies and refusals breaks a promise (shard ${shard} of ${SHARDS})`,
    () => {
      const startedMs = performance.now();
      const sums: Record<string, number> = {};
      for (let count = 0; count < SCHEDULES; count++) {
        const result = run(FIRST_SEED + count * SHARDS + shard - 1);
        if (result.failure !== undefined) throw failureOf(result);
        const { steps, counts } = result;
        for (const [name, times] of Object.entries({ steps, ...counts })) {
          sums[name] = (sums[name] ?? 0) + times;
        }
      }
      const seconds = (performance.now() - startedMs) / 1_000;
      const rate = Math.round(SCHEDULES / seconds);
      console.log(
        `${SCHEDULES} schedules in ${seconds.toFixed(1)} s, ${rate} a second: ${JSON.stringify(sums)}`,
      );
      // Schedules in which nothing happens would keep every promise.
      expect(sums.answered).toBeGreaterThan(SCHEDULES);
      expect(sums.delivered).toBeGreaterThan(SCHEDULES);
      expect(sums.refused).toBeGreaterThan(SCHEDULES / 10);
    },
    TIMEOUT_MS,
  );
}

function testReplays(): void {
  test.if(ONLY_SEED !== undefined)("the schedule of GATEWAY_SIM_SEED keeps every promise", () => {
    const result = run(Number(ONLY_SEED), true);
    for (const line of result.trace) console.log(line);
    if (result.failure !== undefined) throw failureOf(result);
  });

  test.if(ONLY_SEED === undefined)(
    "a seed is a schedule: run again, it takes the same steps at the same times",
    () => {
      for (let seed = FIRST_SEED; seed < FIRST_SEED + TWICE; seed++) {
        const [first, second] = [run(seed), run(seed, true)];
        expect({ seed, hash: second.hash, steps: second.steps }).toEqual({
          seed,
          hash: first.hash,
          steps: first.steps,
        });
      }
    },
    TIMEOUT_MS,
  );
}
