import type { Effect } from "../../db/ledger/effects.ts";
import type { CancellationToken } from "../../db/ledger/group-commit.ts";
import { type GatewayError, overloaded } from "../../src/lib/errors.ts";
import {
  type ActorDefinition,
  assertMayCause,
  assertMayRead,
  type MessageOf,
  type ReplyOf,
  type Turn,
  type Verbs,
} from "./definition.ts";
import type { ActorEnvironment } from "./registry.ts";

/** Most messages that wait for an actor to load, plus replies that wait for a commit. */
export const MAX_MAILBOX_MESSAGES = 4_096;
/** Most decisions on one message. A message is decided again if an earlier commit fails. */
const MAX_DECISIONS = 64;

/**
 * Time for which an actor uses a load that found no row. It limits the reads for unknown ids, and the time during
 * which an existing object is rejected because one read missed it.
 */
const ABSENT_MS = 250;

/** The commit of one turn, with its result. */
interface TurnCommit {
  outcome: "pending" | "durable" | "failed" | "given up";
  error?: unknown;
  /** Settles with this commit and the earlier ones that its turn may have seen. Rejects if one of them failed. */
  gate: Promise<void> | undefined;
}

/**
 * One actor in memory. Its states:
 *
 *   empty    no state: nothing was loaded yet, or the last commit failed, or `forget` was called.
 *   loading  a load is in progress; messages wait in the mailbox.
 *   active   turns run immediately, one after another.
 *
 * The first message moves an empty actor to loading. A load ends in active, or in empty if it fails.
 * `forget` (the table changed) or a failed commit moves an active actor to empty.
 *
 * While a commit of this actor is in progress, replies wait for it, because a turn may have seen a change that is
 * not durable yet. A load that found no row makes the actor active only for a moment.
 *
 * Commits between two loads form a chain. If one of them fails, later decisions are not written, and are made
 * again after a new load. A turn that writes without changing the state does not affect other turns, even if its
 * commit fails.
 */
export class ActorCell<State, Table extends Verbs<State>> {
  readonly id: string;
  /** Time of the last use in milliseconds, within about a second. The registry sets it for passivation. */
  lastUsedMs = 0;
  readonly #definition: ActorDefinition<State, Table>;
  readonly #environment: ActorEnvironment;
  #state: State | undefined;
  #stale = false;
  #loading: Promise<void> | undefined;
  #forgottenWhileLoading = false;
  /** Time at which a load that found no row must be repeated. */
  #absentUntilMs: number | undefined;
  #gate: Promise<void> | undefined;
  #commitChain: CancellationToken = { isCancelled: false };
  #waiting = 0;

  constructor(
    id: string,
    definition: ActorDefinition<State, Table>,
    environment: ActorEnvironment,
  ) {
    this.id = id;
    this.#definition = definition;
    this.#environment = environment;
  }

  get isActive(): boolean {
    if (this.#state === undefined || this.#stale) return false;
    return this.#absentUntilMs === undefined || this.#isAbsenceFresh(this.#absentUntilMs);
  }

  /** True if turns can run, even on a state from before the last change of the table. */
  get isLoaded(): boolean {
    return this.#state !== undefined;
  }

  /** The commit that replies must wait for. Undefined if there is none. */
  get gate(): Promise<void> | undefined {
    return this.#gate;
  }

  get waitingMessages(): number {
    return this.#waiting;
  }

  get mayPassivate(): boolean {
    if (this.#loading || this.#gate || this.#waiting > 0) return false;
    return this.#state === undefined || (this.#definition.mayPassivate?.(this.#state) ?? true);
  }

  /** Marks the state as outdated, because the table changed: the next message loads it again. */
  forget(): void {
    this.#stale = true;
    if (this.#loading) this.#forgottenWhileLoading = true;
  }

  /** Forgets the state if it meets the condition, or if it is not loaded. */
  forgetIf(isMeant: (state: State) => boolean): void {
    if (this.#state === undefined || isMeant(this.#state)) this.forget();
  }

  /** Loads the actor if it is not active. Throws 503 immediately if too many messages wait. */
  async activate(): Promise<void> {
    while (!this.isActive) {
      this.#enter();
      try {
        this.#loading ??= this.#load();
        await this.#loading;
      } finally {
        this.#waiting--;
      }
    }
  }

  /**
   * Runs a turn immediately. The actor must be active and the verb must not write. Before the caller sends the
   * reply, it waits for `gate`.
   */
  turn<Name extends keyof Table & string>(
    verb: Name,
    message: MessageOf<Table, Name>,
  ): ReplyOf<Table, Name> {
    const turn = this.#decide(verb, message);
    if (turn === undefined) return undefined as ReplyOf<Table, Name>;
    if (writes(turn)) {
      throw new Error(`verb ${this.#definition.kind}.${verb} writes: call it with ask`);
    }
    this.#state = turn.state;
    return turn.reply;
  }

  /**
   * Loads the actor if necessary, runs the turn, and replies when everything that the turn may have seen is
   * durable. Rejects with 503 before the turn if too many messages wait, or with the error of the turn's commit.
   */
  async ask<Name extends keyof Table & string>(
    verb: Name,
    message: MessageOf<Table, Name>,
  ): Promise<ReplyOf<Table, Name>> {
    for (let decision = 0; decision < MAX_DECISIONS; decision++) {
      while (!this.isActive) await this.activate();
      this.#enter();
      try {
        const turn = this.#decide(verb, message) ?? this.#mutatedTurn();
        const isWrite = writes(turn);
        if (isWrite)
          assertMayCause(this.#definition.kind, this.#definition.permissions, turn.effects!);
        const isChange = turn.state !== this.#state;
        this.#state = turn.state;
        const turnCommit = isWrite ? this.#commit(turn.effects!, isChange) : undefined;
        const gate = turnCommit === undefined ? this.#gate : turnCommit.gate;
        if (gate === undefined || (await this.#isDurable(gate, turnCommit))) return turn.reply;
      } finally {
        this.#waiting--;
      }
    }
    throw tooMany();
  }

  #decide(verb: string, message: unknown): Turn<State, ReplyOf<Table, string>> | undefined {
    if (this.#state === undefined) throw new Error(`actor ${this.#definition.kind} is not active`);
    const decide = this.#definition.verbs[verb]!;
    return decide(this.#state, message, this.#environment.context);
  }

  /** Returns the turn of a verb that has changed its state in place. */
  #mutatedTurn(): Turn<State, ReplyOf<Table, string>> {
    return { state: this.#state!, reply: undefined as ReplyOf<Table, string> };
  }

  /**
   * Returns false if the turn was decided on a change that never became durable. Throws the error of the turn's
   * commit.
   */
  async #isDurable(gate: Promise<void>, turnCommit: TurnCommit | undefined): Promise<boolean> {
    try {
      await gate;
      return true;
    } catch {
      if (turnCommit?.outcome === "failed") throw turnCommit.error;
      return turnCommit?.outcome === "durable";
    }
  }

  #commit(effects: readonly Effect[], isChange: boolean): TurnCommit {
    const commitChain = this.#commitChain;
    const turnCommit: TurnCommit = { outcome: "pending", gate: undefined };
    const commit = this.#environment.commit(effects, commitChain).then(
      () => {
        turnCommit.outcome = "durable";
      },
      (error) => {
        turnCommit.outcome = commitChain.isCancelled ? "given up" : "failed";
        turnCommit.error = error;
        if (isChange) this.#abandon(commitChain);
        throw error;
      },
    );
    // The gate opens when all earlier commits have ended, even if one of them fails early.
    const gate = Promise.allSettled([this.#gate, commit]).then((outcomes) => {
      if (this.#gate === gate) this.#gate = undefined;
      for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
    });
    gate.catch(() => {});
    turnCommit.gate = gate;
    if (isChange) this.#gate = gate;
    return turnCommit;
  }

  /** Drops decisions that depend on a failed write: the next turn loads again. */
  #abandon(commitChain: CancellationToken): void {
    commitChain.isCancelled = true;
    if (this.#commitChain !== commitChain) return;
    this.#commitChain = { isCancelled: false };
    this.#stale = true;
    if (this.#loading) this.#forgottenWhileLoading = true;
  }

  #isAbsenceFresh(untilMs: number): boolean {
    const leftMs = untilMs - this.#environment.clock.nowMs();
    // A longer time than ABSENT_MS means that the clock was set back.
    return leftMs > 0 && leftMs <= ABSENT_MS;
  }

  async #load(): Promise<void> {
    const { kind, permissions, load, reload, isAbsent } = this.#definition;
    this.#forgottenWhileLoading = false;
    try {
      // Waits for current writes, which are not in the table yet.
      while (this.#gate !== undefined) await this.#gate.catch(() => {});
      const loaded = await load(this.id, {
        nowMs: this.#environment.clock.nowMs(),
        read: (query) => {
          assertMayRead(kind, permissions, query.tables);
          return this.#environment.read(query);
        },
      });
      const previous = this.#state;
      this.#state = previous !== undefined && reload ? reload(previous, loaded) : loaded;
      this.#stale = this.#forgottenWhileLoading;
      const isFound = isAbsent === undefined || !isAbsent(loaded);
      this.#absentUntilMs = isFound ? undefined : this.#environment.clock.nowMs() + ABSENT_MS;
    } finally {
      this.#loading = undefined;
    }
  }

  #enter(): void {
    if (this.#waiting >= MAX_MAILBOX_MESSAGES) throw tooMany();
    this.#waiting++;
  }
}

function writes<State, Reply>(turn: Turn<State, Reply>): boolean {
  return turn.effects !== undefined && turn.effects.length > 0;
}

function tooMany(): GatewayError {
  return overloaded("Too many requests are waiting. Try again shortly.");
}
