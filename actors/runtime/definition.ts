import type { Query } from "../../db/client.ts";
import { type Effect, tablesOf } from "../../db/ledger/effects.ts";
import type { Clock } from "../../src/lib/clock.ts";

/** The decision of one turn: the actor's next state, its reply, and its writes. */
export interface Turn<State, Reply> {
  readonly state: State;
  readonly reply: Reply;
  /** The writes of the turn. The reply is sent when they are durable. */
  readonly effects?: readonly Effect[];
}

/** The clock and randomness of a turn. A simulation replaces both. */
export interface TurnContext {
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
  /** Returns a uniformly distributed number in [0, 1). */
  random(): number;
}

/** Returns a context that reads the time from the clock at each access. */
export function turnContextOf(clock: Clock, random: () => number): TurnContext {
  return {
    get nowMs(): number {
      return clock.nowMs();
    },
    random,
  };
}

/** The access of a load: only reads of the tables that the actor's permissions name. */
interface LoadContext {
  readonly nowMs: number;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * A verb: synchronous and pure. It cannot wait, so two actors cannot wait for each other. A frequent verb that
 * changes only in-memory state can mutate the state and return undefined. It then has no reply and no effects.
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
  /** Merges a loaded state with the in-memory part of the previous one, such as holds. */
  reload?(previous: State, loaded: State): State;
  /** Returns true if the table had no row of the actor. Such a state is soon loaded again. */
  isAbsent?(state: State): boolean;
  /** Returns false if the state has data that is in no table. Such an actor is not passivated. */
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

/** Returns the definition; its verbs keep their types. */
export function defineActor<State, Table extends Verbs<State>>(
  definition: ActorDefinition<State, Table>,
): ActorDefinition<State, Table> {
  return definition;
}

/**
 * The tables and events that an actor can use; all others are denied. No actor has network access: a turn is
 * synchronous, and its context has only a clock and randomness.
 */
interface Permissions {
  readonly reads: readonly string[];
  readonly writes: readonly string[];
  readonly events: readonly string[];
}

/** A program error, not a caller's: the actor used a table or event that its definition does not name. */
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
