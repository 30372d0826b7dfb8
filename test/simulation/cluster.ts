import type { FaultPlan } from "./fault-plan.ts";
import { Front } from "./front.ts";
import { type GatewayGuards, SimulatedGateway } from "./gateway.ts";
import type { RequestPlan } from "./plan.ts";
import type { Connection } from "./postgres/connection.ts";
import type { ModelContext } from "./postgres/model-context.ts";
import type { ModelledServer } from "./postgres/server.ts";
import type { Promises } from "./promises.ts";
import { RequestRecord } from "./request-record.ts";
import type { World } from "./world.ts";

export interface ClusterOptions {
  readonly world: World;
  readonly server: ModelledServer;
  readonly context: ModelContext;
  readonly promises: Promises;
  readonly requests: Map<string, RequestRecord>;
  readonly deploymentMode: DeploymentMode;
  readonly guards: GatewayGuards;
  readonly faults: FaultPlan;
}

/** One gateway at a time; several; or one, and several in its place once it is gone. */
export type DeploymentMode = "single-node" | "clustered" | "changing";

const MAX_STARTS = 60;
/** Restarts come soon enough that a schedule stays short. */
const LONGEST_RESTART_MS = 1_500;

/** The instances of one schedule, those that are gone included, and who is being served by which. */
export class Cluster {
  readonly gateways: SimulatedGateway[] = [];
  hasFaults = true;
  #isEnding = false;
  #restarts = 0;
  readonly #options: ClusterOptions;
  readonly #running = new Map<RequestRecord, SimulatedGateway>();

  constructor(options: ClusterOptions) {
    this.#options = options;
  }

  /** Of an instance that starts now. */
  get #deploymentMode(): "single-node" | "clustered" {
    const { deploymentMode } = this.#options;
    if (deploymentMode !== "changing") return deploymentMode;
    return this.gateways.length === 0 ? "single-node" : "clustered";
  }

  get living(): SimulatedGateway[] {
    return this.gateways.filter(({ process }) => !process.isGone);
  }

  get ready(): SimulatedGateway[] {
    return this.living.filter(({ isReady }) => isReady);
  }

  start(): void {
    if (this.gateways.length >= MAX_STARTS) return;
    const { world, faults } = this.#options;
    const deploymentMode = this.#deploymentMode;
    const gateway = new SimulatedGateway({
      ...this.#options,
      deploymentMode,
      name: `${deploymentMode === "single-node" ? "a" : "s"}${this.gateways.length}`,
      epoch: BigInt(this.gateways.length + 1),
      onSend: (_, connection) => {
        if (this.hasFaults && world.random.chance(faults.brokenShare)) this.#breakSoon(connection);
      },
    });
    this.gateways.push(gateway);
    gateway.process.onGone(() => this.#gone(gateway));
    gateway.start();
  }

  /** A request arrives at one of the instances, if any takes connections. */
  send(plan: RequestPlan): void {
    const { world, promises, requests } = this.#options;
    const ready = this.ready;
    if (ready.length === 0) return;
    const gateway = world.random.pick(ready);
    const record = new RequestRecord(
      plan,
      world.nowMs,
      () => gateway.deploymentMode === "single-node" && gateway.money.outstandingHolds > 0,
    );
    requests.set(plan.requestId, record);
    this.#running.set(record, gateway);
    const front = new Front(gateway, promises);
    gateway.process.after(0, `request ${plan.requestId}`, () => {
      front.serve(record).catch((error) => promises.fault(error));
    });
  }

  /** Nothing more goes wrong; what has begun to is over in its time. */
  calm(): void {
    this.hasFaults = false;
    const { manners } = this.#options.server;
    manners.refusedShare = 0;
    // Where every fourth heartbeat takes seconds, no instance is declared dead.
    manners.longCommitShare = 0;
  }

  /** All at once, when nothing more is to be done by them. */
  killAll(): void {
    this.#isEnding = true;
    for (const { process } of this.living) process.kill();
    this.#isEnding = false;
  }

  #breakSoon(connection: Connection): void {
    const { world, faults, server } = this.#options;
    const { random } = world;
    world.after(random.between(0, 3 + faults.usualCommitMs * 2), "cut", () => {
      connection.break(random.delay(1, 200), random.delay(1, 400));
      if (faults.refusedShare > 0 && random.chance(0.5)) {
        server.manners.refusesUntilMs = world.nowMs + random.between(20, 400);
      }
    });
  }

  #gone(gateway: SimulatedGateway): void {
    const { world } = this.#options;
    world.note(`${gateway.process.name} is gone`);
    for (const [record, of] of this.#running) {
      if (of !== gateway) continue;
      record.hasDied ||= !this.#isEnding;
      if (record.end === undefined) record.isLost = true;
    }
    const wanted = this.#deploymentMode === "single-node" ? 1 : 2;
    while (this.living.length + this.#restarts < wanted) {
      this.#restarts++;
      world.after(world.random.between(20, LONGEST_RESTART_MS), "restart", () => {
        this.#restarts--;
        if (this.living.length < wanted) this.start();
      });
    }
  }
}
