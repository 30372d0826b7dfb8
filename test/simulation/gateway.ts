import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import { LEDGER_SETTINGS, type Query, SHARED_LEDGER_SETTINGS } from "../../db/client.ts";
import type { GroupCommit } from "../../db/ledger/group-commit.ts";
import { CreditOrders } from "../../src/billing/ledger/credit-orders.ts";
import type { MoneyPort } from "../../src/billing/ledger/interface.ts";
import { createActorWorld } from "../../src/main/compose/actor-world.ts";
import type { Connections } from "../../src/main/compose/base.ts";
import { type ClusterNode, createClusterNode } from "../../src/main/compose/cluster-node.ts";
import { createLedger, createMoney } from "../../src/main/compose/money.ts";
import { ChangeFeed } from "../../src/platform/cluster/change-feed.ts";
import type { Telemetry } from "../../src/platform/telemetry/interface.ts";
import { Link } from "./link.ts";
import type { Connection } from "./postgres/connection.ts";
import { ModelledDriver } from "./postgres/driver.ts";
import type { ModelContext } from "./postgres/model-context.ts";
import type { ModelledServer } from "./postgres/server.ts";
import { Process } from "./process.ts";
import { Violation } from "./violation.ts";
import type { World } from "./world.ts";

/** What keeps the promises in the composition; a test takes one away at a time. */
export interface GatewayGuards {
  /** Replies of actors leave after what they rest on is durable. */
  readonly outputGate: boolean;
  /** Answers leave after their charges are durable. */
  readonly answerAfterCharge: boolean;
}

export interface GatewayOptions {
  readonly world: World;
  readonly server: ModelledServer;
  readonly context: ModelContext;
  readonly deploymentMode: "single-node" | "clustered";
  readonly guards: GatewayGuards;
  readonly name: string;
  readonly epoch: bigint;
  readonly promises: { fault(error: unknown): void };
  onSend(name: string, connection: Connection): void;
}

const POOL_SIZE = 3;

/** One instance of the gateway in a process of its own, composed of what the product is composed of. */
export class SimulatedGateway {
  readonly process: Process;
  readonly deploymentMode: "single-node" | "clustered";
  readonly link: Link;
  readonly money: MoneyPort;
  readonly ledger: GroupCommit;
  readonly keys: ApiKeyActors;
  readonly node: ClusterNode;
  readonly drivers: readonly ModelledDriver[];
  readonly isAnswerAfterCharge: boolean;
  isReady = false;

  constructor(options: GatewayOptions) {
    const { world, deploymentMode, guards, name } = options;
    this.process = new Process(world, name);
    this.link = new Link(world, this.process);
    this.deploymentMode = deploymentMode;
    this.isAnswerAfterCharge = guards.answerAfterCharge;
    const { clock } = this.process;
    const instance = { id: `ins_${name}`, epoch: options.epoch };
    const isShared = deploymentMode === "clustered";
    const ledgerName = `gateway-ledger-${isShared ? instance.id : ""}`;
    const open = (poolSize: number, applicationName: string, settings = {}): ModelledDriver =>
      new ModelledDriver({ ...options, link: this.link, poolSize, applicationName, settings });
    const pool = open(POOL_SIZE, `gateway-pool-${name}`);
    const ledgerDriver = open(1, ledgerName, isShared ? SHARED_LEDGER_SETTINGS : LEDGER_SETTINGS);
    const lock = open(1, `gateway-lock-${name}-${options.epoch}`);
    this.drivers = [pool, ledgerDriver, lock];
    const { sql } = pool;
    const onError = (error: unknown): void => {
      world.note(`${name} failure: ${(error as Error).message}`);
    };
    const onFenced = (): void => this.process.kill();

    const read = <Result>(query: Query<Result>): Promise<Result> => query.run(sql);
    const changes = new ChangeFeed({ sql: lock.sql, onUnknownKind() {} });
    const common = {
      isClustered: isShared,
      connections: { ledger: ledgerDriver.sql, ledgerName },
      instance,
      // That a guard of the database was needed is a fault, although it has kept the promise.
      telemetry: {
        ...silentTelemetry,
        log: {
          fatal: ({ err }: { err: Error }) =>
            options.promises.fault(new Violation("M1", err.message)),
        },
      } as unknown as Telemetry,
      onFenced,
      onError,
    };
    const ledger = createLedger(common);
    const actors = createActorWorld({
      changes,
      clock,
      read,
      commit(effects, commitChain) {
        const durable = ledger.submit(effects, commitChain);
        if (guards.outputGate) return durable;
        durable.catch(() => {});
        return Promise.resolve();
      },
    });
    const money = createMoney({
      ...common,
      ...actors,
      ledger,
      clock,
      notes: { add() {}, remove() {} },
    });
    const { keys, organizations } = actors;
    this.money = money;
    this.ledger = ledger;
    this.keys = keys;
    const orders = new CreditOrders({
      organizations,
      holdsAreShared: isShared,
      clock,
      read,
      onError,
    });
    changes.on("credit-command", () => void orders.carryOut());
    changes.onGap(() => void orders.carryOut());
    this.node = createClusterNode({
      // Nothing else of the connections is asked for.
      connections: { background: sql, lock: lock.sql, renewLock() {} } as unknown as Connections,
      instance,
      deploymentMode,
      clock,
      telemetry: silentTelemetry,
      changes,
      onFenced,
      onError,
      cleaningTasks: [],
    });
  }

  /** True where nothing is under way to the database but heartbeats. */
  get isIdle(): boolean {
    const [pool, ledger] = this.drivers;
    return pool!.isIdle && ledger!.isIdle && this.ledger.queuedUnits === 0;
  }

  /** Begins its life, as an event of its own process. */
  start(): void {
    this.process.after(0, "start", () => {
      this.#enter().then(
        () => {
          this.isReady = true;
        },
        // As the program does: it ends, and its supervisor starts another one.
        () => this.process.kill(),
      );
    });
  }

  async #enter(): Promise<void> {
    await this.node.enter();
    await this.node.start();
  }
}

/** No promise depends on logs and counts. */
const silentTelemetry = {
  log: { warn() {} },
  countClampedCharge() {},
  observeCommit() {},
  gauge() {},
  counter() {},
} as unknown as Telemetry;
