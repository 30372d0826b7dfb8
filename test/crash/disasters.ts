import { expect } from "bun:test";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import type { Instance } from "../clustered/cluster.ts";
import { until } from "../support/until.ts";
import { look } from "./books.ts";
import type { ClusteredGrounds } from "./clustered-grounds.ts";
import { isStopped } from "./gateway-process.ts";
import type { Load } from "./load.ts";

const LOAD_MS = { least: 250, most: 900 };
const DOWN_MS = { least: 50, most: 300 };
/** What the others may take to clear up behind a dead one. */
export const QUIET_TIMEOUT_MS = 3 * INSTANCE_LEASE_MS + 10_000;

/** What several gateways under load may meet. Each leaves all of them running again. */
export class Disasters {
  readonly #grounds: ClusteredGrounds;
  readonly #load: Load;
  readonly #random: () => number;

  constructor(grounds: ClusteredGrounds, load: Load, random: () => number) {
    this.#grounds = grounds;
    this.#load = load;
    this.#random = random;
  }

  /** Lets the load run for a while. */
  someLoad(): Promise<void> {
    return Bun.sleep(this.#between(LOAD_MS));
  }

  /** Ends one gateway; the others continue, and a new one replaces it. */
  async kill(): Promise<void> {
    const place = this.#anyPlace();
    const { gateway } = this.#leave(place);
    gateway.signal("SIGKILL");
    await gateway.exited;
    await Bun.sleep(this.#between(DOWN_MS));
    await this.#grounds.start(place);
  }

  /** One stands still until the others have declared it dead, and wakes. */
  async pause(): Promise<void> {
    const place = this.#anyPlace();
    const { gateway, baseUrl } = this.#leave(place);
    gateway.signal("SIGSTOP");
    await until("it stands still", () => isStopped(gateway.pid));
    this.#load.noteStopped(baseUrl);
    await this.someLoad();
    // The rest of the lease without load, which would only heat the machine.
    this.#load.close();
    await Bun.sleep(INSTANCE_LEASE_MS);
    const others = this.#grounds.instances.length - 1;
    await until(
      "it is declared dead",
      async () => (await this.#aliveInstances()) === others,
      QUIET_TIMEOUT_MS,
    );
    this.#load.open(...this.#grounds.urls(place));
    gateway.signal("SIGCONT");
    expect(await gateway.exited).toBe(1);
    await this.#grounds.start(place);
  }

  async redis(): Promise<void> {
    const { redis } = this.#grounds;
    await redis.kill();
    await this.someLoad();
    await redis.start();
    await this.someLoad();
  }

  async database(): Promise<void> {
    const [grounds, load] = [this.#grounds, this.#load];
    load.noteCut();
    grounds.killDatabase();
    await Bun.sleep(this.#between(DOWN_MS));
    load.close();
    load.noteCut();
    await grounds.reviveDatabase();
    await Promise.all(grounds.instances.map(untilReady));
    load.open(...grounds.urls());
    await this.someLoad();
  }

  /** The load goes to the others from here on, and what this one was answering may be cut. */
  #leave(place: number): Instance {
    const instance = this.#grounds.instances[place]!;
    this.#load.open(...this.#grounds.urls(place));
    this.#load.noteCut(instance.baseUrl);
    return instance;
  }

  #anyPlace(): number {
    return Math.floor(this.#random() * this.#grounds.instances.length);
  }

  #between({ least, most }: { least: number; most: number }): number {
    return least + this.#random() * (most - least);
  }

  #aliveInstances(): Promise<number> {
    return look(this.#grounds.cluster.databaseUrl, async (sql) => {
      const [row] = await sql`SELECT count(*)::int AS alive FROM instances WHERE alive`;
      return row!.alive as number;
    });
  }
}

const untilReady = ({ gateway, baseUrl }: Instance) =>
  until(
    "it is ready",
    () =>
      fetch(`${baseUrl}/readyz`, { keepalive: false }).then(
        ({ ok }) => ok,
        () => false,
      ),
    QUIET_TIMEOUT_MS,
  ).catch((error: Error) => {
    throw new Error(`${error.message}; it said last:\n${gateway.stdout().slice(-2_000)}`);
  });
