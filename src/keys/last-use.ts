import type { Database } from "../../db/client.ts";
import { noteKeyUse } from "../../db/queries/api-keys.ts";

/** Beyond this, uses of further keys are not noted until the next write. */
const MAX_NOTED_KEYS = 10_000;
const WRITE_MS = 1_000;

/** Notes when keys were used for what charges nothing, and writes that down once a second at most. */
export class LastUse {
  readonly #sql: Database;
  readonly #onError: (error: unknown) => void;
  #usedAtMs = new Map<string, number>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(sql: Database, onError: (error: unknown) => void) {
    this.#sql = sql;
    this.#onError = onError;
  }

  note(keyId: string, nowMs: number): void {
    if (this.#usedAtMs.size >= MAX_NOTED_KEYS && !this.#usedAtMs.has(keyId)) return;
    this.#usedAtMs.set(keyId, nowMs);
    this.#timer ??= setTimeout(() => void this.write(), WRITE_MS);
  }

  async write(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = [...this.#usedAtMs].map(([keyId, usedAtMs]) => ({ keyId, usedAtMs }));
    this.#usedAtMs = new Map();
    if (uses.length === 0) return;
    try {
      await noteKeyUse(this.#sql, uses);
    } catch (error) {
      this.#onError(error);
    }
  }
}
