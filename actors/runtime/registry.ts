import type { Query } from "../../db/client.ts";
import type { Effect } from "../../db/ledger/effects.ts";
import type { CancellationToken } from "../../db/ledger/group-commit.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { IntrusiveList, type ListNode } from "../../src/lib/intrusive-list.ts";
import { ActorCell } from "./cell.ts";
import type { ActorDefinition, TurnContext, Verbs } from "./definition.ts";

/** The access of actors to clock, database and commits. A simulation passes its own. */
export interface ActorEnvironment {
  readonly clock: Clock;
  /** The context of each turn. */
  readonly context: TurnContext;
  /**
   * Resolves when the effects are durable. Rejects if they are known not to be. Effects of one chain become
   * durable in the order of the calls. After a chain is cancelled, its unwritten effects are rejected.
   */
  commit(effects: readonly Effect[], commitChain: CancellationToken): Promise<void>;
  read<Result>(query: Query<Result>): Promise<Result>;
}

export interface PassivationPolicy {
  /** Actors above this number are removed, least recently used first. */
  readonly maxActors: number;
  readonly idleMs: number;
}

const DEFAULT_PASSIVATION: PassivationPolicy = { maxActors: 100_000, idleMs: 600_000 };
/** Resolution of `lastUsedMs`: recording each use would cost time on the hot path. */
const USE_RESOLUTION_MS = 1_000;
/** Most actors that one sweep examines without removing them. */
const MAX_EXAMINED = 1_000;

class ListedCell<State, Table extends Verbs<State>>
  extends ActorCell<State, Table>
  implements ListNode<ListedCell<State, Table>>
{
  older: ListedCell<State, Table> | undefined;
  newer: ListedCell<State, Table> | undefined;
}

/** The actors of one kind in this process, by id. */
export class ActorRegistry<State, Table extends Verbs<State>> {
  readonly #definition: ActorDefinition<State, Table>;
  readonly #environment: ActorEnvironment;
  readonly #passivation: PassivationPolicy;
  readonly #cells = new Map<string, ListedCell<State, Table>>();
  readonly #order = new IntrusiveList<ListedCell<State, Table>>();

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

  /** Returns the actor with this id. It is loaded at its first message. */
  get(id: string): ActorCell<State, Table> {
    const nowMs = this.#environment.clock.nowMs();
    let cell = this.#cells.get(id);
    if (cell === undefined) {
      // Evicts before adding, so that the new actor is not evicted.
      if (this.#cells.size >= this.#passivation.maxActors) this.#evictLeastRecentlyUsed();
      cell = new ListedCell(id, this.#definition, this.#environment);
      cell.lastUsedMs = nowMs;
      this.#cells.set(id, cell);
      this.#order.add(cell);
    } else if (nowMs - cell.lastUsedMs >= USE_RESOLUTION_MS) {
      cell.lastUsedMs = nowMs;
      this.#order.renew(cell);
    }
    return cell;
  }

  /** Returns the actor with this id if it is in memory. */
  peek(id: string): ActorCell<State, Table> | undefined {
    return this.#cells.get(id);
  }

  forget(id: string): void {
    this.#cells.get(id)?.forget();
  }

  /** Forgets the states that meet the condition, and those that are being loaded. */
  forgetWhere(isMeant: (state: State) => boolean): void {
    for (const cell of this.#cells.values()) cell.forgetIf(isMeant);
  }

  /** Forgets all states. After a gap in the change feed, all of them can be outdated. */
  forgetAll(): void {
    for (const cell of this.#cells.values()) cell.forget();
  }

  /** Removes idle actors. Call it every few seconds. */
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
    for (let remaining = MAX_EXAMINED; cell !== undefined && remaining > 0; remaining--) {
      if (this.#cells.size < this.#passivation.maxActors) return;
      const { newer } = cell;
      this.#removeIfIdle(cell);
      cell = newer;
    }
  }

  #removeIfIdle(cell: ListedCell<State, Table>): void {
    if (!cell.mayPassivate) return;
    this.#cells.delete(cell.id);
    this.#order.remove(cell);
  }
}
