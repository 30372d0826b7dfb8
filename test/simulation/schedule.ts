import { Administration } from "./administration.ts";
import { Cluster } from "./cluster.ts";
import { type FaultPlan, planFaults } from "./fault-plan.ts";
import { firstRows } from "./first-rows.ts";
import type { GatewayGuards } from "./gateway.ts";
import { withoutRealTime } from "./no-real-time.ts";
import { planPayers, planRequest } from "./plan.ts";
import { ALL_GUARDS, type ModelContext, type ModelGuards } from "./postgres/model-context.ts";
import { ModelledServer } from "./postgres/server.ts";
import { createTables } from "./postgres/tables.ts";
import { Promises } from "./promises.ts";
import type { RequestRecord } from "./request-record.ts";
import { World } from "./world.ts";

export interface Guards extends ModelGuards, GatewayGuards {}

export const EVERY_GUARD: Guards = { ...ALL_GUARDS, outputGate: true, answerAfterCharge: true };

export interface ScheduleOptions {
  readonly seed: number;
  readonly guards?: Guards;
  readonly keepsTrace?: boolean;
  /** See planFaults. */
  readonly hasLateRefusals?: boolean;
}

export interface ScheduleResult {
  readonly seed: number;
  readonly steps: number;
  /** Of everything that happened, in order. */
  readonly hash: number;
  readonly failure: Error | undefined;
  readonly trace: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
}

const DEPLOYMENT_MODES = [
  "single-node",
  "single-node",
  "clustered",
  "clustered",
  "clustered",
  "changing",
] as const;
const MAX_STEPS = 200_000;
const START_MS = Date.UTC(2026, 2, 14, 12);
/** Shortly before a day and a month end. */
const LATE_START_MS = Date.UTC(2026, 2, 31, 23, 59, 57);
const MAX_REST_MS = 30_000;
const LOOK_MS = 250;

/** Runs one schedule to its end, or to the first promise that does not hold. */
export function runSchedule(options: ScheduleOptions): ScheduleResult {
  const { seed, keepsTrace = false } = options;
  const startMs = seed % 5 === 0 ? LATE_START_MS : START_MS;
  const world = new World(seed, startMs, keepsTrace);
  return withoutRealTime(world, () => new Schedule(world, options).run());
}

class Schedule {
  readonly #world: World;
  readonly #seed: number;
  readonly #faults: FaultPlan;
  readonly #requests = new Map<string, RequestRecord>();
  readonly #promises: Promises;
  readonly #context: ModelContext;
  readonly #server: ModelledServer;
  readonly #cluster: Cluster;
  readonly #administration: Administration;
  readonly #workMs: number;

  constructor(
    world: World,
    { seed, guards = EVERY_GUARD, hasLateRefusals = false }: ScheduleOptions,
  ) {
    this.#world = world;
    this.#seed = seed;
    const { random } = world;
    const tables = createTables(guards.limitInHold);
    this.#context = {
      tables,
      guards,
      nowMs: () => world.nowMs,
      nextId: () => world.nextId(),
      isInterrupted: () => random.chance(0.15),
      shuffled: (items) => [...items].sort(() => random.next() - 0.5),
    };
    this.#faults = planFaults(random, hasLateRefusals);
    const { requests, context } = { requests: this.#requests, context: this.#context };
    this.#promises = new Promises(
      context,
      () => world.nowMs,
      (text) => world.note(text),
      requests,
    );
    this.#server = new ModelledServer(
      world,
      tables,
      { ...this.#faults, refusesUntilMs: 0 },
      this.#promises,
    );
    const deploymentMode = random.pick(DEPLOYMENT_MODES);
    this.#cluster = new Cluster({
      world,
      server: this.#server,
      context,
      promises: this.#promises,
      requests,
      deploymentMode,
      guards,
      faults: this.#faults,
    });
    const payers = planPayers(random);
    this.#server.commit(firstRows(context, payers));
    const count = deploymentMode === "clustered" ? random.integer(2, 3) : 1;
    for (let i = 0; i < count; i++) this.#cluster.start();
    this.#workMs = random.between(500, random.pick([1_500, 3_000, 7_000]));
    const settlingMs = 200;
    for (let number = 1; number <= random.integer(4, 36); number++) {
      const plan = planRequest(random, payers, number);
      this.#at(settlingMs + random.between(0, this.#workMs), "send", () =>
        this.#cluster.send(plan),
      );
    }
    this.#administration = new Administration({
      world,
      cluster: this.#cluster,
      promises: this.#promises,
      server: this.#server,
      context,
      payers,
    });
    for (let i = random.integer(0, 8); i > 0; i--) {
      this.#at(random.between(0, this.#workMs), "administration", () => this.#administration.act());
    }
    this.#planFaults();
    if (deploymentMode === "changing") {
      this.#at(random.between(500, this.#workMs), "change", () => {
        for (const { process } of this.#cluster.living) process.kill();
      });
    }
  }

  run(): ScheduleResult {
    const { failure } = this.#promises;
    try {
      if (failure === undefined) this.#runAll();
    } catch (error) {
      this.#promises.fault(error);
    }
    return {
      seed: this.#seed,
      steps: this.#world.steps,
      hash: this.#world.hash,
      failure: this.#promises.failure,
      trace: this.#world.trace,
      counts: this.#promises.counts,
    };
  }

  #runAll(): void {
    const endMs = this.#world.nowMs + this.#workMs + 300;
    this.#runUntil(endMs, () => false);
    this.#cluster.calm();
    const isOver = (): boolean => this.#isOver();
    this.#runUntil(this.#world.nowMs + MAX_REST_MS, isOver);
    if (this.#promises.failure === undefined && this.#faults.refusedShare > 0 && !isOver()) {
      // What was refused stays held until its instance ends: then another one settles it.
      this.#cluster.killAll();
      this.#runUntil(this.#world.nowMs + MAX_REST_MS, isOver);
    }
    if (this.#promises.failure !== undefined) return;
    this.#promises.atRest(this.#requests.values());
    this.#promises.watch(() => this.#administration.atRest());
  }

  #runUntil(untilMs: number, isOver: () => boolean): void {
    for (let lookMs = this.#world.nowMs; lookMs < untilMs; ) {
      lookMs = Math.min(untilMs, lookMs + LOOK_MS);
      while (this.#world.step(lookMs)) {
        if (this.#promises.failure !== undefined) return;
        if (this.#world.steps > MAX_STEPS) throw new Error("the schedule does not end");
      }
      if (isOver()) return;
    }
  }

  /** Every request has ended, nothing is held, and no instance works. */
  #isOver(): boolean {
    const { tables } = this.#context;
    for (const record of this.#requests.values()) {
      if (record.end === undefined && !record.isLost) return false;
    }
    for (const _ of tables.attempts.all()) return false;
    for (const _ of tables.holds.all()) return false;
    const ready = this.#cluster.ready;
    return (
      ready.length > 0 &&
      this.#cluster.living.every(({ process, link }) => !process.isPaused && !link.isParted) &&
      this.#administration.isIdle &&
      ready.every(({ money, isIdle }) => money.outstandingHolds === 0 && isIdle)
    );
  }

  #planFaults(): void {
    const { random } = this.#world;
    const faults = this.#faults;
    const times = (count: number, label: string, run: () => void): void => {
      for (let i = 0; i < count; i++) this.#at(random.between(100, this.#workMs), label, run);
    };
    times(faults.kills, "kill", () => {
      const [victim] = this.#someLiving();
      victim?.process.kill();
    });
    times(faults.pauses, "pause", () => {
      const [victim] = this.#someLiving();
      if (victim === undefined || victim.process.isPaused) return;
      victim.process.pause();
      this.#world.note(`${victim.process.name} is paused`);
      this.#at(random.between(50, 6_000), "resume", () => victim.process.resume());
    });
    times(faults.partings, "part", () => {
      const [victim] = this.#someLiving();
      if (victim === undefined || victim.link.isParted) return;
      victim.link.part();
      this.#at(random.between(50, 5_000), "heal", () => victim.link.heal());
      if (random.chance(0.4)) this.#cluster.start();
      for (const { connections } of victim.drivers) {
        for (const connection of connections) {
          if (random.chance(0.4))
            connection.break(random.delay(50, 3_000), random.delay(50, 3_000));
        }
      }
    });
    times(faults.serverCrashes, "server crash", () => {
      this.#server.crash();
      this.#at(random.between(50, 2_500), "server is back", () => this.#server.recover());
    });
  }

  #someLiving() {
    const { living } = this.#cluster;
    return living.length === 0 ? [] : [this.#world.random.pick(living)];
  }

  #at(delayMs: number, label: string, run: () => void): void {
    this.#world.after(delayMs, label, run);
  }
}
