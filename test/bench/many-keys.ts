import type { Database } from "../../db/client.ts";
import { createKeys } from "./bench-keys.ts";
import { median } from "./compare.ts";
import type { Driver, Measurement, Target } from "./driver.ts";
import type { ManyKeys } from "./results.ts";

export interface ManyKeysOptions {
  readonly driver: Driver;
  readonly gateway: Target;
  readonly sql: Database;
  readonly count: number;
  readonly connections: number;
  readonly rounds: number;
  readonly warmupMs: number;
  readonly measureMs: number;
}

/** One key against many, among which the requests go around. */
export async function measureManyKeys(options: ManyKeysOptions): Promise<ManyKeys> {
  const { driver, gateway, count, rounds } = options;
  const keys = await createKeys(options.sql, count);
  const workload = { model: "instant", isStream: false } as const;
  const run = { ...options, target: gateway, workload };
  const first = await driver.run({ ...run, keys, warmupRequests: count });
  const one: Measurement[] = [];
  const many: Measurement[] = [];
  for (let round = 0; round < rounds; round++) {
    one.push(await driver.run(run));
    many.push(await driver.run({ ...run, keys }));
  }
  const rates = (all: Measurement[]) => all.map(({ ratePerSecond }) => ratePerSecond);
  const cpu = (all: Measurement[]) => median(all.map((each) => each.cpuMicros));
  return {
    count,
    firstTouchRate: (count / first.warmedUpMs) * 1_000,
    oneKeyRate: median(rates(one)),
    manyKeysRate: median(rates(many)),
    ratio: median(rates(many).map((rate, round) => rate / rates(one)[round]!)),
    oneKeyCpuMicros: cpu(one),
    manyKeysCpuMicros: cpu(many),
    peakMb: Math.max(...many.map(({ peakMb }) => peakMb)),
  };
}
