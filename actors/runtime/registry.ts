import type { Query } from "../../db/client.ts";
import type { Effect } from "../../db/ledger/effects.ts";
import type { CancellationToken } from "../../db/ledger/group-commit.ts";
import { IntrusiveList, type ListNode } from "../../src/lib/age-order.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { ActorCell } from "./cell.ts";
import type { ActorDefinition, TurnContext, Verbs } from "./definition.ts";

/** Everything that actors reach, handed in: a simulation hands in another world. */
export interface ActorEnvironment {
  readonly clock: Clock;
  /** What each turn gets. */
  readonly context: TurnContext;
  /**
   * Resolves when the effects are durable, rejects where they are known not to be. Effects of one lineage
   * become durable in the order in which they are handed in; once a lineage is abandoned, what of it is
   * not written yet is rejected.
   */
  commit(effects: readonly Effect[], commitChain: CancellationToken): Promise<void>;
  read<Result>(query: Query<Result>): Promise<Result>;
}

export interface PassivationPolicy {
  /** Above this many, the least recently used go first. */
  readonly maxActors: number;
  readonly idleMs: number;
}

const DEFAULT_PASSIVATION: PassivationPolicy = { maxActors: 100_000, idleMs: 600_000 };
/** Use is noted at most this often for each actor, so that noting it costs nothing on the hot path. */
const USE_RESOLUTION_MS = 1_000;
/** How many candidates one sweep looks at beyond those it removes. */
const SWEEP_PATIENCE = 1_000;

class KeptCell<State, Table extends Verbs<State>>
  extends ActorCell<State, Table>
  implements ListNode<KeptCell<State, Table>>
{
  older: KeptCell<State, Table> | undefined;
  newer: KeptCell<State, Table> | undefined;
}

/** The actors of one kind in this process, found by id. */
export class ActorRegistry<State, Table extends Verbs<State>> {
  readonly #definition: ActorDefinition<State, Table>;
  readonly #environment: ActorEnvironment;
  readonly #passivation: PassivationPolicy;
  readonly #cells = new Map<string, KeptCell<State, Table>>();
  readonly #order = new IntrusiveList<KeptCell<State, Table>>();

  constructor(
    definition: ActorDefinition<State, Table>,
    environment: ActorEnvironment,
    passivation: PassivationPolicy = DEFAULT_PASSIVATION,
  ) {
    this.#definition = definition;
    this.#environment = environment;
    this.#passivation = passivation;
  }

  get size(): number {
    return this.#cells.size;
  }

  get waitingMessages(): number {
    let waiting = 0;
    for (const cell of this.#cells.values()) waiting += cell.waitingMessages;
    return waiting;
  }

  /** The actor with this id; nothing is loaded before it is asked something. */
  get(id: string): ActorCell<State, Table> {
    const nowMs = this.#environment.clock.nowMs();
    let cell = this.#cells.get(id);
    if (cell === undefined) {
      // Before the new one is in: it must not be the one that goes.
      if (this.#cells.size >= this.#passivation.maxActors) this.#evictLeastRecentlyUsed();
      cell = new KeptCell(id, this.#definition, this.#environment);
      cell.lastUsedMs = nowMs;
      this.#cells.set(id, cell);
      this.#order.add(cell);
    } else if (nowMs - cell.lastUsedMs >= USE_RESOLUTION_MS) {
      cell.lastUsedMs = nowMs;
      this.#order.renew(cell);
    }
    return cell;
  }

  /** The actor with this id if it is in memory. */
  peek(id: string): ActorCell<State, Table> | undefined {
    return this.#cells.get(id);
  }

  forget(id: string): void {
    this.#cells.get(id)?.forget();
  }

  /** After a gap in the news of changes nothing in memory can be trusted. */
  forgetAll(): void {
    for (const cell of this.#cells.values()) cell.forget();
  }

  /** Removes actors that were idle for long. To be called every few seconds. */
  passivateIdle(): void {
    const idleSinceMs = this.#environment.clock.nowMs() - this.#passivation.idleMs;
    let cell = this.#order.oldest;
    while (cell !== undefined && cell.lastUsedMs <= idleSinceMs) {
      const { newer } = cell;
      this.#removeIfIdle(cell);
      cell = newer;
    }
  }

  #evictLeastRecentlyUsed(): void {
    let cell = this.#order.oldest;
    for (let patience = SWEEP_PATIENCE; cell !== undefined && patience > 0; patience--) {
      if (this.#cells.size < this.#passivation.maxActors) return;
      const { newer } = cell;
      this.#removeIfIdle(cell);
      cell = newer;
    }
  }

  #removeIfIdle(cell: KeptCell<State, Table>): void {
    if (!cell.mayPassivate) return;
    this.#cells.delete(cell.id);
    this.#order.remove(cell);
  }
}
