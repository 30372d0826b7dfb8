import { join } from "node:path";

export const STATES = join(import.meta.dir, "..", "fixtures", "upgrades");

/** What an earlier program told its clients before it was killed, next to a backup of what it kept. */
export interface RecordedState {
  readonly commit: string;
  readonly secretKey: string;
  readonly managementKey: string;
  /** Ids of requests that were answered, and so charged. */
  readonly requests: readonly string[];
  /** A request under an idempotency key, and the id of its answer. */
  readonly repeated: { readonly body: object; readonly id: string };
  readonly file: { readonly id: string; readonly sha256: string };
  /** A stored response, where the program had them. */
  readonly response: string | null;
}
