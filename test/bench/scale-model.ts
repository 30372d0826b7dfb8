/**
 * How far instances and one Postgres go, by simulation: `bun test/bench/scale-model.ts`. An instance commits in
 * groups, one commit at a time; a commit locks the accounts of its organizations in the order of their ids,
 * computes on one of the database's cores, waits for the disk and unlocks. `COST` is what
 * many-instances.ts measures; the network and the gateways' own time are left out.
 */
import { SeededRandom } from "../simulation/seeded-random.ts";

/** Processor time of Postgres: each commit, each hold or charge in it, and each organization in it. */
const COST = { commitMicros: 660, unitMicros: 22, organizationMicros: 60 };
const MAX_BATCH_UNITS = 256;
const ANSWER_MICROS = 1_000_000;
const WARMUP_MICROS = 2_000_000;
const SIMULATED_MICROS = 6_000_000;
/** A rate beyond which 1 % of the holds take longer is too high. */
const BEARABLE_MS = 250;
const LEAST_STEP = 1.1;

interface World {
  readonly instances: number;
  /** Requests come evenly from them. */
  readonly organizations: number;
  readonly cores: number;
  readonly flushMicros: number;
}

interface Outcome {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly unitsACommit: number;
  readonly busyCores: number;
}

interface Unit {
  readonly organization: number;
  readonly queuedAt: number;
  /** Else it charges. */
  readonly isHold: boolean;
}

interface Instance {
  queue: Unit[];
  isCommitting: boolean;
}

/** Events in the order of their times: a binary heap. */
class Agenda {
  readonly #events: { readonly at: number; readonly run: () => void }[] = [];

  add(at: number, run: () => void): void {
    const events = this.#events;
    let place = events.length;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (events[parent]!.at <= at) break;
      events[place] = events[parent]!;
      place = parent;
    }
    events[place] = { at, run };
  }

  /** Runs the next event; its time, or undefined where there is none. */
  step(onTime: (at: number) => void): boolean {
    const events = this.#events;
    const [first] = events;
    const last = events.pop();
    if (first === undefined || last === undefined) return false;
    if (events.length > 0) {
      let place = 0;
      for (let child = 1; child < events.length; child = 2 * place + 1) {
        if (child + 1 < events.length && events[child + 1]!.at < events[child]!.at) child++;
        if (events[child]!.at >= last.at) break;
        events[place] = events[child]!;
        place = child;
      }
      events[place] = last;
    }
    onTime(first.at);
    first.run();
    return true;
  }
}

/** What so many requests a second meet. */
function simulate(world: World, ratePerSecond: number): Outcome {
  const random = new SeededRandom(1);
  const agenda = new Agenda();
  const instances: Instance[] = Array.from({ length: world.instances }, () => ({
    queue: [],
    isCommitting: false,
  }));
  /** The commits that wait for each organization's account; the first one has it. */
  const locks = new Map<number, (() => void)[]>();
  const waitingForCore: (() => void)[] = [];
  let [now, freeCores] = [0, world.cores];
  let [commits, units, coreMicros] = [0, 0, 0];
  const holdsMicros: number[] = [];
  const isCounted = () => now >= WARMUP_MICROS;

  const arrive = (): void => {
    agenda.add(now - (Math.log(1 - random.next()) * 1_000_000) / ratePerSecond, arrive);
    const organization = random.integer(0, world.organizations - 1);
    queueUnit(random.pick(instances), { organization, queuedAt: now, isHold: true });
  };
  const queueUnit = (instance: Instance, unit: Unit): void => {
    instance.queue.push(unit);
    if (!instance.isCommitting) commit(instance);
  };
  const commit = (instance: Instance): void => {
    instance.isCommitting = true;
    const batch = instance.queue.splice(0, MAX_BATCH_UNITS);
    const organizations = [...new Set(batch.map(({ organization }) => organization))].toSorted(
      (one, other) => one - other,
    );
    lockFrom(organizations, 0, () => compute(instance, batch, organizations));
  };
  const lockFrom = (organizations: readonly number[], place: number, then: () => void): void => {
    const organization = organizations[place];
    if (organization === undefined) {
      then();
      return;
    }
    const next = () => lockFrom(organizations, place + 1, then);
    const waiting = locks.get(organization);
    if (waiting === undefined) {
      locks.set(organization, [next]);
      next();
    } else {
      waiting.push(next);
    }
  };
  const compute = (
    instance: Instance,
    batch: readonly Unit[],
    organizations: readonly number[],
  ): void => {
    if (freeCores === 0) {
      waitingForCore.push(() => compute(instance, batch, organizations));
      return;
    }
    freeCores--;
    const micros =
      COST.commitMicros +
      COST.unitMicros * batch.length +
      COST.organizationMicros * organizations.length;
    if (isCounted()) coreMicros += micros;
    agenda.add(now + micros, () => {
      freeCores++;
      waitingForCore.shift()?.();
      agenda.add(now + world.flushMicros, () => finish(instance, batch, organizations));
    });
  };
  const finish = (
    instance: Instance,
    batch: readonly Unit[],
    organizations: readonly number[],
  ): void => {
    for (const organization of organizations) {
      const waiting = locks.get(organization)!;
      waiting.shift();
      if (waiting.length === 0) locks.delete(organization);
      else waiting[0]!();
    }
    if (isCounted()) {
      commits++;
      units += batch.length;
    }
    for (const { organization, queuedAt, isHold } of batch) {
      if (!isHold) continue;
      if (isCounted()) holdsMicros.push(now - queuedAt);
      agenda.add(now + ANSWER_MICROS, () =>
        queueUnit(instance, { organization, queuedAt: now, isHold: false }),
      );
    }
    instance.isCommitting = false;
    if (instance.queue.length > 0) commit(instance);
  };

  agenda.add(0, arrive);
  const endsAt = WARMUP_MICROS + SIMULATED_MICROS;
  while (now < endsAt && agenda.step((at) => (now = at)));
  const sorted = holdsMicros.toSorted((one, other) => one - other);
  const share = (part: number) => (sorted[Math.floor(sorted.length * part)] ?? Infinity) / 1_000;
  return {
    p50Ms: share(0.5),
    p99Ms: share(0.99),
    unitsACommit: units / commits,
    busyCores: coreMicros / SIMULATED_MICROS,
  };
}

/** The highest rate that is borne, to a tenth. */
function highestRate(world: World): number {
  let [rate, step] = [100, 4];
  while (step >= LEAST_STEP) {
    if (simulate(world, rate * step).p99Ms <= BEARABLE_MS) rate *= step;
    else step = Math.sqrt(step);
  }
  return rate;
}

console.info(
  "organizations | instances | cores | flush | highest requests/s | hold p50, p99 | units a commit | busy cores",
);
for (const organizations of [1, 100, 10_000]) {
  for (const instances of [1, 3, 10, 30]) {
    for (const cores of [4, 16]) {
      const world = { instances, organizations, cores, flushMicros: 1_000 };
      const rate = highestRate(world);
      const { p50Ms, p99Ms, unitsACommit, busyCores } = simulate(world, rate);
      console.info(
        [
          organizations,
          instances,
          cores,
          "1 ms",
          Math.round(rate),
          `${p50Ms.toFixed(1)}, ${p99Ms.toFixed(1)} ms`,
          unitsACommit.toFixed(1),
          busyCores.toFixed(1),
        ].join(" | "),
      );
    }
  }
}
