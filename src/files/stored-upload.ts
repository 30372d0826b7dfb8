import { type Database, isConnectionFailure } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import {
  abandonFileUpload,
  beginFileUpload,
  finishFileUpload,
  type NewFile,
  type ReserveOutcome,
  reserveForUpload,
} from "../../db/queries/file-uploads.ts";
import { findFile, forgetRemoval } from "../../db/queries/files.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import type { FileRecord } from "../lib/file-record.ts";
import type { FileStorage, StorageWriter } from "../storage/interface.ts";
import { quotaOfTerms } from "./purposes.ts";

export interface StoredUploadDependencies {
  readonly sql: Database;
  readonly storage: FileStorage;
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  onError(error: unknown): void;
}

/** What an upload of unknown length sets aside at a time, as it grows. */
const RESERVE_STEP_BYTES = 16 * 1024 * 1024;
const FINISH_ATTEMPTS = 3;
const FINISH_RETRY_MS = 300;

/**
 * Bytes on their way into the store, and their place in the quota. What is set aside is never more than
 * the file will have in the end, and the end is exact: an upload is refused only where it and what runs
 * beside it cannot all fit, so as many get through as there is room for.
 *
 * The database knows of the upload before the store does. Whatever dies in between, its row leads to the
 * bytes.
 */
export class StoredUpload {
  readonly storageKey: string;
  readonly #dependencies: StoredUploadDependencies;
  readonly #writer: StorageWriter;
  readonly #hash = new Bun.CryptoHasher("sha256");
  readonly #quotaBytes: number;
  #reservedBytes = 0;
  #storedBytes = 0;
  #isWhole = false;
  /** What it was to become, as it was named last: before that no attempt had made a file of it. */
  #file: NewFile | undefined;

  /** Notes the upload. */
  static async begin(
    dependencies: StoredUploadDependencies,
    upload: { readonly storageKey: string; readonly organizationId: string },
  ): Promise<StoredUpload> {
    const terms = await beginFileUpload(dependencies.sql, dependencies.instance, upload);
    return new StoredUpload(dependencies, upload.storageKey, quotaOfTerms(terms));
  }

  private constructor(
    dependencies: StoredUploadDependencies,
    storageKey: string,
    allowedBytes: number,
  ) {
    this.#dependencies = dependencies;
    this.storageKey = storageKey;
    this.#quotaBytes = allowedBytes;
    this.#writer = dependencies.storage.write(storageKey);
  }

  get bytes(): number {
    return this.#storedBytes;
  }

  /** @param bytes as many as the file has at least. Throws 403 where they do not fit. */
  async reserve(bytes: number): Promise<void> {
    const { sql } = this.#dependencies;
    if (bytes <= this.#reservedBytes) return;
    assertKept(await reserveForUpload(sql, this.storageKey, bytes, this.#quotaBytes));
    this.#reservedBytes = bytes;
  }

  /** Resolves when the store can take more. Throws 403, StorageError. */
  async write(piece: Uint8Array): Promise<void> {
    this.#hash.update(piece);
    await this.#writer.write(piece);
    this.#storedBytes += piece.byteLength;
    if (this.#storedBytes - this.#reservedBytes >= RESERVE_STEP_BYTES) {
      await this.reserve(this.#storedBytes);
    }
  }

  /** Resolves when all bytes are durable; nothing can be written any more. Throws StorageError. */
  async end(): Promise<void> {
    await this.#writer.finish();
    this.#isWhole = true;
  }

  /** Makes a file of what has ended. Throws 403; what throws is to be given up. */
  async finish(nameFile: () => NewFile, isAnnounced = false): Promise<FileRecord> {
    const content = {
      storageKey: this.storageKey,
      bytes: this.#storedBytes,
      sha256: this.#hash.digest("hex"),
    };
    const { sql, clock } = this.#dependencies;
    const finish = {
      quotaBytes: this.#quotaBytes,
      isAnnounced,
      nameFile: () => {
        this.#file = nameFile();
        return this.#file;
      },
    };
    for (let attempt = 1; ; attempt++) {
      try {
        const outcome = await finishFileUpload(sql, content, finish);
        const found = await this.#foundFile();
        // Lost, and there: an attempt whose answer did not come had done it.
        if (found !== undefined) return found;
        assertKept(outcome === "stored" ? "lost" : outcome);
      } catch (error) {
        if (!isConnectionFailure(error) || attempt === FINISH_ATTEMPTS) throw error;
        await new Promise<void>((resolve) => clock.after(FINISH_RETRY_MS, resolve));
      }
    }
  }

  /**
   * Gives up: neither a row nor bytes stay. Where the database is out of reach the row stays and is swept
   * later. Never rejects.
   */
  async abandon(): Promise<void> {
    const { sql, storage, onError } = this.#dependencies;
    // Whole bytes may belong to a file by now; only the row can tell.
    if (!this.#isWhole) await this.#writer.abort();
    try {
      const isOurs = await abandonFileUpload(sql, this.storageKey);
      // If it was declared dead, its bytes may have arrived after the cleaning removed them.
      if (!isOurs && (await this.#foundFile()) !== undefined) return;
      await storage.remove(this.storageKey);
      await forgetRemoval(sql, this.storageKey);
    } catch (error) {
      onError(error);
    }
  }

  /** The file that was made of it; undefined where there is none. */
  async #foundFile(): Promise<FileRecord | undefined> {
    if (this.#file === undefined) return undefined;
    const { organizationId, id } = this.#file;
    const found = await findFile(this.#dependencies.sql, organizationId, id);
    return found?.storageKey === this.storageKey ? found : undefined;
  }
}

function assertKept(outcome: ReserveOutcome | "stored"): void {
  if (outcome === "full") {
    throw new GatewayError("quota_exceeded", "The file does not fit into the storage quota.", {
      param: "file",
    });
  }
  // An upload that does not renew itself for a while is declared dead, as after a long pause.
  if (outcome === "lost") {
    throw new GatewayError("overloaded", "The upload was interrupted; send it again.", {
      retryAfterSeconds: 1,
    });
  }
}
