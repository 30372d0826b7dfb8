import type { Author } from "../../src/lib/author.ts";
import type { DatabaseTransaction } from "../client.ts";
import type { Checkpoint, HoldRelease, Settlement } from "./rows.ts";

/** A stored response that its charge makes visible. */
export interface CachedResponse {
  readonly id: string;
  /** Of its input and output. */
  readonly storedBytes: number;
  /** The same with those of all before it. */
  readonly chainBytes: number;
  /** The conversation that it is added to, behind the last response that is there then. */
  readonly conversationId?: string | undefined;
}

/** A change of administration: rare, and free to use several statements. */
export interface StatementEffect {
  readonly kind: "statement";
  readonly name: string;
  /** Tables it writes and events it emits, checked against the permissions of the actor that asks. */
  readonly tables: readonly string[];
  readonly events: readonly string[];
  /** Who asked for it, where that was not the gateway itself. */
  readonly author?: Author | undefined;
  /** Set if it is owed to a caller: it is written regardless of the queue. There are no more than requests. */
  readonly isOwed?: true;
  /** Set where it does nothing but this: then the batch of its charge does it, and `run` is not called. */
  readonly keeps?: CachedResponse;
  run(sql: DatabaseTransaction): Promise<void>;
  /** True where it has kept the answer for a later call: then its charge stands although its caller gave up. */
  storesAnswer?(): boolean;
}

export type Effect =
  | { readonly kind: "checkpoint"; readonly checkpoint: Checkpoint }
  | { readonly kind: "settle"; readonly settlement: Settlement }
  /** Only where holds stand in the database. */
  | { readonly kind: "release"; readonly release: HoldRelease }
  | StatementEffect;

const LEDGER_TABLES = ["accounts", "attempts", "holds", "transactions"] as const;

export function tablesOf(effect: Effect): readonly string[] {
  return effect.kind === "statement" ? effect.tables : LEDGER_TABLES;
}
