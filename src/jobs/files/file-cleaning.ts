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

const CLEANING_INTERVAL_MS = 30_000;
const EXPIRY_BATCH = 200;
const DEAD_UPLOADS_BATCH = 200;
const REMOVALS_BATCH = 50;
/** Batches per run. Remaining work waits for the next run. */
const MAX_BATCHES = 20;
const MAX_CLOSE_WAIT_MS = 500;
/** Seconds without a renewal after which an upload counts as dead. Several renewals are missing then. */
const SILENT_SECONDS = 60;

/**
 * Removes expired files and links, uploads of dead instances, and the bytes of both and of deleted files.
 * Runs at the start, at intervals, and on request.
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

  /** Cleans immediately, and then at intervals. */
  start(): void {
    this.cleanSoon();
    this.#cancelTimer = this.#dependencies.clock.after(CLEANING_INTERVAL_MS, () => {
      if (!this.#isClosed) this.start();
    });
  }

  /** Cleans, or cleans once more after the current run. */
  cleanSoon(): void {
    if (this.#isClosed) return;
    this.#isWanted = true;
    this.#running ??= this.#cleanWhileWanted().finally(() => {
      this.#running = undefined;
    });
  }

  /** Waits for the current run for a limited time. The next start continues the work. */
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
    // An instance without access to the store must not claim removals.
    await this.#dependencies.storage.assertOurs();
    await this.#repeat(REMOVALS_BATCH, () => this.#removeBytes());
  }

  /** Repeats a step while its batches are full, at most MAX_BATCHES times. */
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
        // A later run claims it again.
        onError(error);
      }
    }
    return keys.length;
  }
}
