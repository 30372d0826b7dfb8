import type { Database } from "../../../db/client.ts";
import { abandonDeadUploads } from "../../../db/queries/file-uploads.ts";
import {
  claimRemovals,
  deleteExpiredFiles,
  forgetRemoval,
  haveRemovals,
} from "../../../db/queries/files.ts";
import { deleteExpiredMediaLinks } from "../../../db/queries/media-links.ts";
import type { Clock } from "../../lib/clock.ts";
import type { FileStorage } from "../../platform/storage/interface.ts";

export interface FileCleaningDependencies {
  readonly sql: Database;
  readonly storage: FileStorage;
  readonly clock: Clock;
  onError(error: unknown): void;
}

const CLEANING_MS = 30_000;
const EXPIRY_BATCH = 200;
const DEAD_UPLOADS_BATCH = 200;
const REMOVALS_BATCH = 50;
/** What is left after these waits for the next time. */
const MAX_BATCHES = 20;
const MAX_CLOSE_WAIT_MS = 500;
/** Several renewals late. */
const SILENT_SECONDS = 60;

/**
 * Removes what has no owner: expired files and links, uploads of dead instances, and the bytes of both
 * and of deleted files. At the start, now and then, and when it is asked.
 */
export class FileCleaning {
  readonly #dependencies: FileCleaningDependencies;
  #cancelTimer: (() => void) | undefined;
  #running: Promise<void> | undefined;
  #isWanted = false;
  #isClosed = false;

  constructor(dependencies: FileCleaningDependencies) {
    this.#dependencies = dependencies;
  }

  /** Cleans at once, and from then on regularly. */
  start(): void {
    this.cleanSoon();
    this.#cancelTimer = this.#dependencies.clock.after(CLEANING_MS, () => {
      if (!this.#isClosed) this.start();
    });
  }

  /** Cleans, once more where it is at it already. */
  cleanSoon(): void {
    if (this.#isClosed) return;
    this.#isWanted = true;
    this.#running ??= this.#cleanWhileWanted().finally(() => {
      this.#running = undefined;
    });
  }

  /** Waits for what is under way, as far as database and store answer; the next start does the rest. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#isWanted = false;
    this.#cancelTimer?.();
    await Promise.race([this.#running, Bun.sleep(MAX_CLOSE_WAIT_MS)]);
  }

  async #cleanWhileWanted(): Promise<void> {
    while (this.#isWanted) {
      this.#isWanted = false;
      await this.#clean().catch((error: unknown) => {
        if (!this.#isClosed) this.#dependencies.onError(error);
      });
    }
  }

  async #clean(): Promise<void> {
    const { sql } = this.#dependencies;
    const dead = { silentSeconds: SILENT_SECONDS, limit: DEAD_UPLOADS_BATCH };
    await this.#repeat(EXPIRY_BATCH, () => deleteExpiredFiles(sql, EXPIRY_BATCH));
    await this.#repeat(EXPIRY_BATCH, () => deleteExpiredMediaLinks(sql, EXPIRY_BATCH));
    await this.#repeat(DEAD_UPLOADS_BATCH, () => abandonDeadUploads(sql, dead));
    if (!(await haveRemovals(sql))) return;
    // Nothing is claimed from those who could do it.
    await this.#dependencies.storage.assertOurs();
    await this.#repeat(REMOVALS_BATCH, () => this.#removeBytes());
  }

  /** As long as batches are full, and at most MAX_BATCHES times. */
  async #repeat(batch: number, step: () => Promise<number>): Promise<void> {
    for (let turn = 0; turn < MAX_BATCHES && !this.#isClosed; turn++) {
      if ((await step()) < batch) return;
    }
  }

  async #removeBytes(): Promise<number> {
    const { sql, storage, onError } = this.#dependencies;
    const keys = await claimRemovals(sql, REMOVALS_BATCH);
    for (const key of keys) {
      if (this.#isClosed) break;
      try {
        await storage.remove(key);
        await forgetRemoval(sql, key);
      } catch (error) {
        // It is claimed again later.
        onError(error);
      }
    }
    return keys.length;
  }
}
