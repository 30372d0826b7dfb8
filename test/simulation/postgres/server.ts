import type { World } from "../world.ts";
import { DISK_FULL, ModelledError } from "./errors.ts";
import { Session, type SessionSettings, type Statement } from "./session.ts";
import type { Tables } from "./tables.ts";
import type { Change, Transaction } from "./transaction.ts";

/** What the checks of the promises receive. */
export interface Observer {
  committed(transaction: Transaction, changes: readonly Change[]): void;
  deadlock(circle: readonly Transaction[]): void;
  /** Something failed that no schedule explains. */
  fault(error: unknown): void;
}

/** How the server does in this schedule. */
export interface ServerManners {
  usualCommitMs: number;
  longestCommitMs: number;
  longCommitShare: number;
  /** Of what may be refused: how much is, although nothing is wrong with it. */
  refusedShare: number;
  /** The disk is full until then. */
  refusesUntilMs: number;
}

/**
 * A Postgres server as far as the gateway can tell: sessions, transactions at READ COMMITTED, row locks,
 * commits that take time, and crashes that undo what was not committed.
 */
export class ModelledServer {
  readonly world: World;
  readonly tables: Tables;
  readonly manners: ServerManners;
  isUp = true;
  readonly #observer: Observer;
  readonly #sessions = new Set<Session>();
  readonly #whenRecovered: (() => void)[] = [];
  readonly #listeners = new Set<(channel: string, payload: string) => void>();

  constructor(world: World, tables: Tables, manners: ServerManners, observer: Observer) {
    this.world = world;
    this.tables = tables;
    this.manners = manners;
    this.#observer = observer;
  }

  get sessions(): Iterable<Session> {
    return this.#sessions;
  }

  open(name: string, settings: SessionSettings, onClosed: () => void): Session {
    const session = new Session(this, name, settings, onClosed);
    this.#sessions.add(session);
    return session;
  }

  forget(session: Session): void {
    this.#sessions.delete(session);
  }

  listen(listener: (channel: string, payload: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  crash(): void {
    this.isUp = false;
    for (const session of [...this.#sessions]) session.crash();
  }

  recover(): void {
    this.isUp = true;
    for (const tell of this.#whenRecovered) tell();
  }

  onRecovered(tell: () => void): void {
    this.#whenRecovered.push(tell);
  }

  commit(transaction: Transaction): void {
    const { notifications } = transaction;
    const changes = transaction.commit();
    if (changes.length > 0) this.#observer.committed(transaction, changes);
    for (const text of notifications) {
      const space = text.indexOf(" ");
      for (const tell of this.#listeners) tell(text.slice(0, space), text.slice(space + 1));
    }
  }

  onDeadlock(circle: readonly Transaction[]): void {
    this.#observer.deadlock(circle);
  }

  /** A fault of the model itself. */
  onFault(error: unknown): never {
    this.#observer.fault(error);
    throw error;
  }

  workMs(): number {
    return this.world.random.delay(0.5, 20);
  }

  commitMs(): number {
    const { usualCommitMs, longestCommitMs, longCommitShare } = this.manners;
    return this.world.random.delay(usualCommitMs, longestCommitMs, longCommitShare);
  }

  refusalOf(statement: Statement): ModelledError | undefined {
    if (statement.isRefusable !== true) return undefined;
    const { refusedShare, refusesUntilMs } = this.manners;
    const isFull = this.world.nowMs < refusesUntilMs;
    // Changes of keys are few: more of them are refused.
    const share = statement.isLedgerBatch ? refusedShare : Math.min(0.5, refusedShare * 10);
    if (!isFull && !this.world.random.chance(share)) return undefined;
    return new ModelledError(DISK_FULL, "no space left on device");
  }
}
