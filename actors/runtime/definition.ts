import type { Query } from "../../db/client.ts";
import { type Effect, tablesOf } from "../../db/ledger/effects.ts";
import type { Clock } from "../../src/lib/clock.ts";

/** What one turn of an actor decides: its next state, its reply, and what is to be written. */
export interface Turn<State, Reply> {
  readonly state: State;
  readonly reply: Reply;
  /** The reply leaves once these are durable. */
  readonly effects?: readonly Effect[];
}

/** What a turn may know of the world. The same is what a simulation replaces. */
export interface TurnContext {
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
  /** Evenly spread in [0, 1). */
  random(): number;
}

/** A context whose time is the clock's whenever a turn asks. */
export function turnContextOf(clock: Clock, random: () => number): TurnContext {
  return {
    get nowMs(): number {
      return clock.nowMs();
    },
    random,
  };
}

/** What loading may reach: reads of the tables that the actor's permissions name, and nothing else. */
interface LoadContext {
  readonly nowMs: number;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * A verb is synchronous and pure: it cannot wait, so two actors cannot wait for one another. One that is
 * told often, and of what only memory knows, may change its state in place instead: where it has nothing
 * to reply either, its turn is undefined.
 */
type Verb<State, Message, Reply> = (
  state: State,
  message: Message,
  context: TurnContext,
) => Turn<State, Reply> | undefined;

// biome-ignore lint/suspicious/noExplicitAny: a table of verbs holds messages and replies of every type
export type Verbs<State> = Record<string, Verb<State, any, any>>;

export interface ActorDefinition<State, Table extends Verbs<State>> {
  readonly kind: string;
  readonly permissions: Permissions;
  load(id: string, context: LoadContext): Promise<State>;
  /** Keeps what only memory knows (such as holds) when the rest is loaded again. */
  reload?(previous: State, loaded: State): State;
  /** True where the table had nothing of the actor: such a state is soon loaded again. */
  isAbsent?(state: State): boolean;
  /** False while memory knows something that no table does: such an actor is not passivated. */
  mayPassivate?(state: State): boolean;
  readonly verbs: Table;
}

export type MessageOf<Table, Name extends keyof Table> =
  Table[Name] extends Verb<
    // biome-ignore lint/suspicious/noExplicitAny: inferred away
    any,
    infer Message,
    unknown
  >
    ? Message
    : never;

export type ReplyOf<Table, Name extends keyof Table> =
  Table[Name] extends Verb<
    // biome-ignore lint/suspicious/noExplicitAny: inferred away
    any,
    // biome-ignore lint/suspicious/noExplicitAny: inferred away
    any,
    infer Reply
  >
    ? Reply
    : never;

/** Makes a definition whose verbs keep their own types. */
export function defineActor<State, Table extends Verbs<State>>(
  definition: ActorDefinition<State, Table>,
): ActorDefinition<State, Table> {
  return definition;
}

/**
 * What an actor may reach; everything else is denied. None may reach the network: a turn is synchronous, and
 * the context that it gets has a clock and randomness only.
 */
interface Permissions {
  readonly reads: readonly string[];
  readonly writes: readonly string[];
  readonly events: readonly string[];
}

/** A fault of the program, not of a caller: the actor asked for what its definition does not name. */
export class PermissionDenied extends Error {
  constructor(kind: string, what: string) {
    super(`actor ${kind} has no permission to ${what}`);
    this.name = "PermissionDenied";
  }
}

export function assertMayRead(
  kind: string,
  permissions: Permissions,
  tables: readonly string[],
): void {
  for (const table of tables) {
    if (!permissions.reads.includes(table)) throw new PermissionDenied(kind, `read ${table}`);
  }
}

export function assertMayCause(
  kind: string,
  permissions: Permissions,
  effects: readonly Effect[],
): void {
  for (const effect of effects) {
    for (const table of tablesOf(effect)) {
      if (!permissions.writes.includes(table)) throw new PermissionDenied(kind, `write ${table}`);
    }
    if (effect.kind !== "statement") continue;
    for (const event of effect.events) {
      if (!permissions.events.includes(event)) throw new PermissionDenied(kind, `emit ${event}`);
    }
  }
}
