import { type Database, isConnectionFailure } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import {
  abandonFileUpload,
  beginFileUpload,
  finishFileUpload,
  type NewFile,
  type ReserveOutcome,
  renewFileUploads,
  reserveForUpload,
} from "../../../db/queries/file-uploads.ts";
import { findFile, forgetRemoval } from "../../../db/queries/files.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import type { FileRecord, UploadPurpose } from "../../lib/file-record.ts";
import { newId, timeOfId } from "../../lib/ids.ts";
import { fileQuotaOf } from "../../lib/plans.ts";
import {
  asStorageFailure,
  type FileStorage,
  type StorageWriter,
} from "../../platform/storage/interface.ts";
import {
  ExpiresAfter,
  isUploadPurpose,
  lifetimeSeconds,
  MAX_FILE_BYTES,
  maxBytes,
} from "./file-check.ts";
import { CheckingThread, type ThreadedCheck } from "./threaded-check.ts";

const RENEW_MS = 10_000;

interface UploadOptions {
  /** Minimum bytes of the upload, as far as the request states them. */
  readonly leastBytes: number;
  /** The key of the caller. */
  readonly keyId: string;
  /**
   * Checks the caller again when all bytes are stored, before the file is created. Rejects if the caller is
   * no longer allowed.
   */
  admitAgain(): Promise<void>;
}

/** The uploads that run in this process. */
export class FileUploads {
  readonly #dependencies: StoredUploadDependencies;
  readonly #slots = new UploadSlots();
  readonly #checking: CheckingThread;
  readonly #running = new Set<string>();
  #cancelTimer: (() => void) | undefined;

  constructor(dependencies: StoredUploadDependencies) {
    this.#dependencies = dependencies;
    this.#checking = new CheckingThread(dependencies.onError);
  }

  /**
   * Lets `receive` fill an upload and creates a file from the upload. If either fails, nothing remains. Throws
   * the errors of `receive` and `admitAgain`, 400 if the upload is invalid, 403 if it exceeds the storage quota,
   * and 503 if too many uploads run or the file cannot be stored now.
   */
  async run(
    organizationId: string,
    receive: (upload: FileUpload) => Promise<void>,
    options: UploadOptions,
  ): Promise<FileRecord> {
    const { leastBytes, admitAgain, keyId } = options;
    return this.store(organizationId, async (stored) => {
      const upload = new FileUpload(stored, this.#checking, organizationId, leastBytes);
      try {
        await receive(upload);
        return await upload.finish(keyId, admitAgain);
      } finally {
        upload.close();
      }
    });
  }

  /** Stores unchecked bytes, for files that the gateway makes itself. */
  async store<Result>(
    organizationId: string,
    fill: (stored: StoredUpload) => Promise<Result>,
  ): Promise<Result> {
    this.#slots.take(organizationId);
    const storageKey = newId("obj");
    this.#running.add(storageKey);
    this.#renewSoon();
    try {
      const stored = await StoredUpload.begin(this.#dependencies, { storageKey, organizationId });
      try {
        return await fill(stored);
      } catch (error) {
        await stored.abandon();
        throw error;
      }
    } finally {
      this.#running.delete(storageKey);
      this.#slots.free(organizationId);
    }
  }

  close(): void {
    this.#running.clear();
    this.#cancelTimer?.();
    this.#checking.close();
  }

  /** Renews the running uploads at intervals, so that they do not count as dead. */
  #renewSoon(): void {
    this.#cancelTimer ??= this.#dependencies.clock.after(RENEW_MS, () => {
      this.#cancelTimer = undefined;
      if (this.#running.size === 0) return;
      renewFileUploads(this.#dependencies.sql, [...this.#running])
        .catch(this.#dependencies.onError)
        .finally(() => this.#running.size > 0 && this.#renewSoon());
    });
  }
}

interface FileHeading {
  readonly filename: string;
  /** The content type that the caller states. */
  readonly contentType: string;
}

const MAX_FILENAME_CHARACTERS = 255;
const MEDIA_TYPE = /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}$/;
const DEFAULT_TYPE = "application/octet-stream";

/** One upload by a caller: its purpose and its file, in any order, checked while they arrive. */
export class FileUpload {
  readonly #stored: StoredUpload;
  readonly #organizationId: string;
  readonly #leastBytes: number;
  #purpose: UploadPurpose | undefined;
  #heading: FileHeading | undefined;
  readonly #expiresAfter = new ExpiresAfter();
  readonly #checking: CheckingThread;
  #check: ThreadedCheck | undefined;

  constructor(
    stored: StoredUpload,
    checking: CheckingThread,
    organizationId: string,
    leastBytes: number,
  ) {
    this.#stored = stored;
    this.#checking = checking;
    this.#organizationId = organizationId;
    this.#leastBytes = leastBytes;
  }

  /**
   * Sets the purpose. Throws 400 if the purpose is unknown or already set, and 413 if the file is already too
   * large for the purpose.
   */
  setPurpose(purpose: string): void {
    if (this.#purpose !== undefined) throw invalid("purpose", "purpose is given more than once.");
    if (!isUploadPurpose(purpose)) {
      throw invalid(
        "purpose",
        "purpose must be one of fine-tune, batch, assistants, vision, user_data.",
      );
    }
    this.#purpose = purpose;
    assertSize(this.#stored.bytes, purpose);
    if (this.#heading === undefined)
      this.#check = this.#checking.begin(this.#organizationId, purpose);
    else this.#check?.decide(purpose);
  }

  /**
   * Reads a form part that states when the file expires. Returns false for another part. Throws 400 if the part
   * is invalid or repeated.
   */
  takeExpiry(part: string, value: string): boolean {
    return this.#expiresAfter.take(part, value);
  }

  /**
   * Begins the file. Throws 400 if the upload already has a file or the filename is invalid, 413 if the file is
   * too large, 403 if it does not fit into the storage quota, and 503 if the upload was declared dead.
   */
  async begin(heading: FileHeading): Promise<void> {
    if (this.#heading !== undefined) throw invalid("file", "file is given more than once.");
    assertFilename(heading.filename);
    assertSize(this.#leastBytes, this.#purpose);
    this.#heading = heading;
    if (this.#purpose === undefined)
      this.#check = this.#checking.begin(this.#organizationId, undefined);
    await this.#stored.reserve(this.#leastBytes);
  }

  /**
   * Writes a piece. Resolves when more can be written. Throws 400 if the bytes are invalid for the purpose, 413
   * if the file is too large, 403 if it does not fit into the storage quota, and 503 if it cannot be checked or
   * stored now.
   */
  async write(piece: Uint8Array): Promise<void> {
    assertSize(this.#stored.bytes + piece.byteLength, this.#purpose);
    await this.#check?.write(piece);
    try {
      await this.#stored.write(piece);
    } catch (error) {
      throw asStorageFailure(error);
    }
  }

  /**
   * Called after the file's last byte. Throws 400 if the bytes are invalid for the purpose, and 503 if they
   * cannot be checked now.
   */
  async end(): Promise<void> {
    await this.#check?.end();
  }

  /** Must be called in any case, after all calls. */
  close(): void {
    this.#check?.drop();
  }

  /**
   * Creates the file after everything has arrived. Throws the errors of `admitAgain`, 400 if the upload is
   * incomplete or invalid, 403 if the file does not fit into the storage quota, and 503 if it cannot be stored
   * now.
   */
  async finish(keyId: string, admitAgain: () => Promise<void>): Promise<FileRecord> {
    const purpose = this.#purpose;
    const heading = this.#heading;
    if (heading === undefined) throw invalid("file", "file is missing.");
    if (purpose === undefined) throw invalid("purpose", "purpose is missing.");
    const lifetime = lifetimeSeconds(purpose, this.#expiresAfter.seconds);
    await this.#check?.passed();
    const stated = MEDIA_TYPE.test(heading.contentType) ? heading.contentType : DEFAULT_TYPE;
    try {
      await this.#stored.end();
      await admitAgain();
      return await this.#stored.finish(() => {
        const id = newId("file");
        return {
          id,
          organizationId: this.#organizationId,
          keyId,
          filename: heading.filename,
          purpose,
          contentType: this.#check?.contentType ?? stated,
          createdAtMs: timeOfId(id),
          lifetimeSeconds: lifetime,
        };
      });
    } catch (error) {
      throw asStorageFailure(error);
    }
  }
}

function assertFilename(filename: string): void {
  const isNamed = filename !== "" && filename.length <= MAX_FILENAME_CHARACTERS;
  if (isNamed && filename.isWellFormed() && !/\p{Cc}/u.test(filename)) return;
  throw invalid(
    "file",
    `file must have a filename of 1 to ${MAX_FILENAME_CHARACTERS} characters without control characters.`,
  );
}

function assertSize(bytes: number, purpose: UploadPurpose | undefined): void {
  const most = purpose === undefined ? MAX_FILE_BYTES : maxBytes(purpose);
  if (bytes <= most) return;
  const kind = purpose === "vision" ? "A file for vision" : "A file";
  throw new GatewayError(
    "payload_too_large",
    `${kind} can have at most ${most / 1024 / 1024} MB.`,
    { param: "file" },
  );
}

function invalid(param: string, message: string): GatewayError {
  return new GatewayError("invalid_body", message, { param });
}

/** Maximum uploads at a time. Each holds two parts of 5 MB in memory while the store is slow. */
const MAX_UPLOADS = 64;
/** Maximum uploads of one organization at a time. */
const MAX_UPLOADS_OF_ORGANIZATION = 32;
const RETRY_AFTER_SECONDS = 5;

/** Bounds the uploads that run in this process at a time. */
class UploadSlots {
  readonly #slots = new SharedRoom(MAX_UPLOADS, MAX_UPLOADS_OF_ORGANIZATION);

  /** Throws 503 if all slots are used. */
  take(organizationId: string): void {
    if (this.#slots.tryTake(organizationId)) return;
    throw overloaded("Too many uploads are running; try again shortly.", RETRY_AFTER_SECONDS);
  }

  free(organizationId: string): void {
    this.#slots.free(organizationId);
  }
}

interface StoredUploadDependencies {
  readonly sql: Database;
  readonly storage: FileStorage;
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  onError(error: unknown): void;
}

/** Bytes that an upload of unknown length reserves at a time, while it grows. */
const RESERVE_STEP_BYTES = 16 * 1024 * 1024;
const FINISH_ATTEMPTS = 3;
const FINISH_RETRY_MS = 300;

/**
 * Bytes that are being stored, with their reservation in the quota. The reservation never exceeds the final
 * size, and is exact at the end. So an upload is rejected only if it does not fit together with the uploads
 * that run at the same time.
 *
 * The row in the database exists before the bytes in the store. After a crash, the row leads to the bytes.
 */
class StoredUpload {
  readonly storageKey: string;
  readonly #dependencies: StoredUploadDependencies;
  readonly #writer: StorageWriter;
  readonly #hash = new Bun.CryptoHasher("sha256");
  readonly #quotaBytes: number;
  #reservedBytes = 0;
  #storedBytes = 0;
  #isWhole = false;
  /** The file as the last attempt named it. Undefined if no attempt was made. */
  #file: NewFile | undefined;

  /** Records the upload in the database. */
  static async begin(
    dependencies: StoredUploadDependencies,
    upload: { readonly storageKey: string; readonly organizationId: string },
  ): Promise<StoredUpload> {
    const terms = await beginFileUpload(dependencies.sql, dependencies.instance, upload);
    return new StoredUpload(dependencies, upload.storageKey, fileQuotaOf(terms));
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

  /**
   * Reserves bytes of the quota. Throws 403 if they do not fit, and 503 if the upload was declared dead.
   *
   * @param bytes minimum size of the file
   */
  async reserve(bytes: number): Promise<void> {
    const { sql } = this.#dependencies;
    if (bytes <= this.#reservedBytes) return;
    assertReserved(await reserveForUpload(sql, this.storageKey, bytes, this.#quotaBytes));
    this.#reservedBytes = bytes;
  }

  /**
   * Writes a piece. Resolves when the store can take more. Throws StorageError if the store fails, 403 if the
   * bytes do not fit into the quota, and 503 if the upload was declared dead.
   */
  async write(piece: Uint8Array): Promise<void> {
    this.#hash.update(piece);
    await this.#writer.write(piece);
    this.#storedBytes += piece.byteLength;
    if (this.#storedBytes - this.#reservedBytes >= RESERVE_STEP_BYTES) {
      await this.reserve(this.#storedBytes);
    }
  }

  /** Resolves when all bytes are durable. Nothing can be written after that. Throws StorageError if the store fails. */
  async end(): Promise<void> {
    await this.#writer.finish();
    this.#isWhole = true;
  }

  /**
   * Creates a file from the stored bytes. Throws 403 if the bytes do not fit into the quota, and 503 if the
   * upload was declared dead. After an error the upload must be abandoned.
   */
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
        const file = await this.#createdFile();
        // The upload is lost but the file exists: an earlier attempt succeeded, and its answer was not
        // received.
        if (file !== undefined) return file;
        assertReserved(outcome === "stored" ? "lost" : outcome);
      } catch (error) {
        if (!isConnectionFailure(error) || attempt === FINISH_ATTEMPTS) throw error;
        await new Promise<void>((resolve) => clock.after(FINISH_RETRY_MS, resolve));
      }
    }
  }

  /**
   * Abandons the upload, and removes its row and bytes. If the database is unreachable, the row stays and is
   * removed later. Never rejects.
   */
  async abandon(): Promise<void> {
    const { sql, storage, onError } = this.#dependencies;
    // Complete bytes can already belong to a file, which only the row shows.
    if (!this.#isWhole) await this.#writer.abort();
    try {
      const isOurs = await abandonFileUpload(sql, this.storageKey);
      // If the upload was declared dead, bytes may have arrived after the cleaning.
      if (!isOurs && (await this.#createdFile()) !== undefined) return;
      await storage.remove(this.storageKey);
      await forgetRemoval(sql, this.storageKey);
    } catch (error) {
      onError(error);
    }
  }

  /** Returns the file made from this upload, or undefined if there is none. */
  async #createdFile(): Promise<FileRecord | undefined> {
    if (this.#file === undefined) return undefined;
    const { organizationId, id } = this.#file;
    const file = await findFile(this.#dependencies.sql, organizationId, id);
    return file?.storageKey === this.storageKey ? file : undefined;
  }
}

function assertReserved(outcome: ReserveOutcome | "stored"): void {
  if (outcome === "full") {
    throw new GatewayError("quota_exceeded", "The file does not fit into the storage quota.", {
      param: "file",
    });
  }
  // An upload without renewals is declared dead, for example after a long pause of the process.
  if (outcome === "lost") {
    throw overloaded("The upload was interrupted; send it again.");
  }
}
