import type { Author } from "../../src/lib/author.ts";
import type { DatabaseTransaction } from "../client.ts";
import type { Checkpoint, HoldRelease, Settlement } from "./rows.ts";

/** A stored response that its charge makes visible. */
export interface StoredResponse {
  readonly id: string;
  /** Size of its input and output. */
  readonly storedBytes: number;
  /** Size of its input and output and of all responses before it. */
  readonly chainBytes: number;
  /**
   * The conversation to which it is appended, after the conversation's last response at that time.
   */
  readonly conversationId?: string | undefined;
}

/** An administrative change. It is rare and may use several statements. */
export interface StatementEffect {
  readonly kind: "statement";
  readonly name: string;
  /**
   * Tables it writes and events it emits, checked against the permissions of the actor that requests it.
   */
  readonly tables: readonly string[];
  readonly events: readonly string[];
  /** Author of the change. Undefined if the gateway itself makes the change. */
  readonly author?: Author | undefined;
  /**
   * True if the gateway owes the change to a caller: it is written even if the queue is full. There are at most as many
   * such changes as requests.
   */
  readonly isOwed?: true;
  /**
   * The response to store, if the effect does nothing else. Then the batch with its charge stores the response, and
   * `run` is not called.
   */
  readonly keeps?: StoredResponse;
  run(sql: DatabaseTransaction): Promise<void>;
  /**
   * Returns true if the effect has stored the answer for a later call. Then the charge stays even if the caller gave
   * up.
   */
  storesAnswer?(): boolean;
}

export type Effect =
  | { readonly kind: "checkpoint"; readonly checkpoint: Checkpoint }
  | { readonly kind: "settle"; readonly settlement: Settlement }
  /** The release of a hold. Used only if holds are in the database. */
  | { readonly kind: "release"; readonly release: HoldRelease }
  | StatementEffect;

const LEDGER_TABLES = ["accounts", "attempts", "holds", "transactions"] as const;

export function tablesOf(effect: Effect): readonly string[] {
  return effect.kind === "statement" ? effect.tables : LEDGER_TABLES;
}
