import { turnContextOf } from "../../actors/runtime/definition.ts";
import type { ActorEnvironment } from "../../actors/runtime/registry.ts";
import type { Query } from "../../db/client.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import type { CancellationToken } from "../../db/ledger/group-commit.ts";
import { VirtualClock } from "../../src/lib/clock.ts";

/** A commit that the test decides about. */
export interface PendingCommit {
  readonly names: readonly string[];
  readonly commitChain: CancellationToken;
  succeed(): Promise<void>;
  fail(error: unknown): Promise<void>;
}

/** A read that the test answers. */
export interface PendingRead {
  readonly name: string;
  answer(value: unknown): Promise<void>;
  fail(error: unknown): Promise<void>;
}

export interface FakeEnvironment extends ActorEnvironment {
  readonly clock: VirtualClock;
  /** In the order in which they were asked for; those that were decided are taken out. */
  readonly commits: PendingCommit[];
  readonly reads: PendingRead[];
  /** Answers reads at once from here on. */
  answerReadsWith(answer: (name: string) => unknown): void;
}

/**
 * The world of an actor in the hands of a test: a virtual clock, and commits and reads that stay under
 * way until the test says how they end.
 */
export function fakeEnvironment(): FakeEnvironment {
  const clock = new VirtualClock();
  const commits: PendingCommit[] = [];
  const reads: PendingRead[] = [];
  let immediate: ((name: string) => unknown) | undefined;
  return {
    clock,
    commits,
    reads,
    answerReadsWith(answer) {
      immediate = answer;
    },
    context: turnContextOf(clock, () => 0.5),
    commit(effects, commitChain) {
      return new Promise<void>((resolve, reject) => {
        const end = (settle: () => void) => {
          commits.splice(commits.indexOf(commit), 1);
          settle();
          return settled();
        };
        const commit: PendingCommit = {
          names: effects.map((effect) => (effect.kind === "statement" ? effect.name : effect.kind)),
          commitChain,
          succeed: () => end(resolve),
          fail: (error) => end(() => reject(error)),
        };
        commits.push(commit);
      });
    },
    read<Result>(query: Query<Result>) {
      if (immediate !== undefined) return Promise.resolve(immediate(query.name) as Result);
      return new Promise<Result>((resolve, reject) => {
        const end = (settle: () => void) => {
          reads.splice(reads.indexOf(read), 1);
          settle();
          return settled();
        };
        const read: PendingRead = {
          name: query.name,
          answer: (value) => end(() => resolve(value as Result)),
          fail: (error) => end(() => reject(error)),
        };
        reads.push(read);
      });
    },
  };
}

const ENOUGH_MICROTASKS = 50;

/** Lets everything run that waits for nothing but promises which are decided. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < ENOUGH_MICROTASKS; turn++) await Promise.resolve();
}

/** Where a promise stands, once everything decided has run. */
export async function stateOf(promise: Promise<unknown>): Promise<"pending" | "done" | "failed"> {
  let state: "pending" | "done" | "failed" = "pending";
  promise.then(
    () => {
      state = "done";
    },
    () => {
      state = "failed";
    },
  );
  await settled();
  return state;
}

export function statement(name: string, over: Partial<StatementEffect> = {}): StatementEffect {
  return {
    kind: "statement",
    name,
    tables: ["counters"],
    events: [],
    run: async () => {},
    ...over,
  };
}
