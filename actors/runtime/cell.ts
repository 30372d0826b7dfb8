import type { Effect } from "../../db/ledger/effects.ts";
import type { CancellationToken } from "../../db/ledger/group-commit.ts";
import { GatewayError } from "../../src/lib/errors.ts";
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

/** Messages that wait for an actor to load, and replies that wait for a commit, together. */
export const MAX_MAILBOX_MESSAGES = 4_096;
/** How often a message is decided again because an earlier commit failed. */
const MAX_DECISIONS = 64;

/**
 * How long an actor believes a load that found nothing. It bounds both the reads that unknown ids cost, and
 * the time for which something that exists is refused because one read missed it.
 */
const ABSENT_MS = 250;

/** What became of the commit of one turn. */
interface OwnCommit {
  outcome: "under way" | "durable" | "failed" | "given up";
  error?: unknown;
  /** This commit, and those before it that its turn may have seen. */
  gate: Promise<void> | undefined;
}

/**
 * One actor in memory. Its states:
 *
 *   empty    no state: nothing was loaded yet, or the last commit failed, or `forget` was called.
 *   loading  a load is under way; messages wait in the mailbox.
 *   active   turns run at once, one after another.
 *
 * empty → loading by the first message; loading → active when loaded, → empty when that fails;
 * active → empty by `forget` (the table changed) and by a failed commit.
 *
 * Output gate: while a commit of this actor is under way, replies wait for it, because a turn may have
 * seen what is not durable yet. A load that found nothing makes the actor active for a moment only. Commits between two loads are one lineage: where one of them fails, what
 * was decided after it is not written, and is decided again on a new load. A turn
 * that writes and leaves the state unchanged affects no other turn, even if its commit fails.
 */
export class ActorCell<State, Table extends Verbs<State>> {
  readonly id: string;
  /** Milliseconds, coarse: kept by the registry for passivation. */
  lastUsedMs = 0;
  readonly #definition: ActorDefinition<State, Table>;
  readonly #environment: ActorEnvironment;
  #state: State | undefined;
  #stale = false;
  #loading: Promise<void> | undefined;
  #forgottenWhileLoading = false;
  /** Of a load that found nothing: when it has to be repeated. */
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

  /** True where turns can run, if only on what was known before the table changed. */
  get isLoaded(): boolean {
    return this.#state !== undefined;
  }

  /** The commit that replies must wait for, if there is one. */
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

  /** The table changed behind the actor: the next message loads it again. */
  forget(): void {
    this.#stale = true;
    if (this.#loading) this.#forgottenWhileLoading = true;
  }

  /** Loads the actor where it is not active. Throws 503 at once where too many wait already. */
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
   * Runs a turn now. Only for an active actor and a verb that writes nothing; the caller that sends the reply
   * out waits for `gate` first.
   */
  turn<Name extends keyof Table & string>(
    verb: Name,
    message: MessageOf<Table, Name>,
  ): ReplyOf<Table, Name> {
    const turn = this.#decide(verb, message);
    if (turn === undefined) return undefined as ReplyOf<Table, Name>;
    if (writes(turn)) {
      throw new Error(`verb ${this.#definition.kind}.${verb} writes: ask for it`);
    }
    this.#state = turn.state;
    return turn.reply;
  }

  /**
   * Loads if need be, runs the turn, and replies once everything the turn may have seen is durable.
   * Rejects with 503 where too many wait, before the turn; and with its own commit's failure.
   */
  async ask<Name extends keyof Table & string>(
    verb: Name,
    message: MessageOf<Table, Name>,
  ): Promise<ReplyOf<Table, Name>> {
    for (let decision = 0; decision < MAX_DECISIONS; decision++) {
      while (!this.isActive) await this.activate();
      this.#enter();
      try {
        const turn = this.#decide(verb, message) ?? this.#turnInPlace();
        const isWrite = writes(turn);
        if (isWrite)
          assertMayCause(this.#definition.kind, this.#definition.permissions, turn.effects!);
        const isChange = turn.state !== this.#state;
        this.#state = turn.state;
        const own = isWrite ? this.#commit(turn.effects!, isChange) : undefined;
        const gate = own === undefined ? this.#gate : own.gate;
        if (gate === undefined || (await this.#isDurable(gate, own))) return turn.reply;
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

  /** The turn of a verb that has changed its state in place. */
  #turnInPlace(): Turn<State, ReplyOf<Table, string>> {
    return { state: this.#state!, reply: undefined as ReplyOf<Table, string> };
  }

  /** False where the turn was decided on what never became durable. Throws its own commit's failure. */
  async #isDurable(gate: Promise<void>, own: OwnCommit | undefined): Promise<boolean> {
    try {
      await gate;
      return true;
    } catch {
      if (own?.outcome === "failed") throw own.error;
      return own?.outcome === "durable";
    }
  }

  #commit(effects: readonly Effect[], isChange: boolean): OwnCommit {
    const commitChain = this.#commitChain;
    const own: OwnCommit = { outcome: "under way", gate: undefined };
    const commit = this.#environment.commit(effects, commitChain).then(
      () => {
        own.outcome = "durable";
      },
      (error) => {
        own.outcome = commitChain.isCancelled ? "given up" : "failed";
        own.error = error;
        if (isChange) this.#abandon(commitChain);
        throw error;
      },
    );
    // The gate opens when the fate of everything behind it is known, also where something fails early.
    const gate = Promise.allSettled([this.#gate, commit]).then((outcomes) => {
      if (this.#gate === gate) this.#gate = undefined;
      for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
    });
    gate.catch(() => {});
    own.gate = gate;
    if (isChange) this.#gate = gate;
    return own;
  }

  /** Drops what was decided on a failed write: the next turn loads again. */
  #abandon(commitChain: CancellationToken): void {
    commitChain.isCancelled = true;
    if (this.#commitChain !== commitChain) return;
    this.#commitChain = { isCancelled: false };
    this.#stale = true;
    if (this.#loading) this.#forgottenWhileLoading = true;
  }

  #isAbsenceFresh(untilMs: number): boolean {
    const leftMs = untilMs - this.#environment.clock.nowMs();
    // More than was given: the clock was set back.
    return leftMs > 0 && leftMs <= ABSENT_MS;
  }

  async #load(): Promise<void> {
    const { kind, permissions, load, reload, isAbsent } = this.#definition;
    this.#forgottenWhileLoading = false;
    try {
      // What is being written is not in the table yet.
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
  return new GatewayError("overloaded", "Too many requests are waiting here. Try again shortly.", {
    retryAfterSeconds: 1,
  });
}
