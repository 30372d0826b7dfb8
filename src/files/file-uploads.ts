import { renewFileUploads } from "../../db/queries/file-uploads.ts";
import { GatewayError } from "../lib/errors.ts";
import { SharedRoom } from "../lib/fair-share.ts";
import type { FileRecord, UploadPurpose } from "../lib/file-record.ts";
import { newId, timeOfId } from "../lib/ids.ts";
import { asStorageFailure } from "./file-library.ts";
import { isUploadPurpose, lifetimeSeconds, MAX_FILE_BYTES, maxBytes } from "./purposes.ts";
import { StoredUpload, type StoredUploadDependencies } from "./stored-upload.ts";
import { CheckingThread, type ThreadedCheck } from "./threaded-check.ts";

const RENEW_MS = 10_000;

interface UploadOptions {
  /** Are known to come. */
  readonly leastBytes: number;
  /** Asked when all bytes are stored, before there is a file. Rejects where there may be none any more. */
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
   * Lets `receive` fill an upload and makes a file of what it received; where either fails nothing is left
   * behind. Throws what `receive` and `admitAgain` throw, and 400, 403, 413, 503.
   */
  async run(
    organizationId: string,
    receive: (upload: FileUpload) => Promise<void>,
    options: UploadOptions,
  ): Promise<FileRecord> {
    const { leastBytes, admitAgain } = options;
    return this.store(organizationId, async (stored) => {
      const upload = new FileUpload(stored, this.#checking, organizationId, leastBytes);
      try {
        await receive(upload);
        return await upload.finish(admitAgain);
      } finally {
        upload.close();
      }
    });
  }

  /** Any bytes, unchecked: for files that the gateway makes itself. */
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

  /** As long as there are uploads, says now and then that they are alive. */
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
  /** As the caller states it. */
  readonly contentType: string;
}

const MAX_FILENAME_CHARACTERS = 255;
const MEDIA_TYPE = /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}$/;
const DEFAULT_TYPE = "application/octet-stream";

/** One upload by a caller: its purpose and its file, in either order, checked as they come. */
export class FileUpload {
  readonly #stored: StoredUpload;
  readonly #organizationId: string;
  readonly #leastBytes: number;
  #purpose: UploadPurpose | undefined;
  #heading: FileHeading | undefined;
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

  /** Throws 400, and 413 where what came already is too large for it. */
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
    if (this.#heading === undefined) this.#check = this.#checking.begin(purpose);
    else this.#check?.decide(purpose);
  }

  /** Throws 400, 403, 413. */
  async begin(heading: FileHeading): Promise<void> {
    if (this.#heading !== undefined) throw invalid("file", "file is given more than once.");
    assertFilename(heading.filename);
    assertSize(this.#leastBytes, this.#purpose);
    this.#heading = heading;
    if (this.#purpose === undefined) this.#check = this.#checking.begin(undefined);
    await this.#stored.reserve(this.#leastBytes);
  }

  /** Resolves when more can be taken. Throws 400, 403, 413, 503. */
  async write(piece: Uint8Array): Promise<void> {
    assertSize(this.#stored.bytes + piece.byteLength, this.#purpose);
    await this.#check?.write(piece);
    try {
      await this.#stored.write(piece);
    } catch (error) {
      throw asStorageFailure(error);
    }
  }

  /** The file's last byte has come. Throws 400, 503. */
  async end(): Promise<void> {
    await this.#check?.end();
  }

  /** To be called in any case, when nothing more comes. */
  close(): void {
    this.#check?.drop();
  }

  /** Everything has come. Throws what `admitAgain` throws, 400, 403, 503. */
  async finish(admitAgain: () => Promise<void>): Promise<FileRecord> {
    const purpose = this.#purpose;
    const heading = this.#heading;
    if (heading === undefined) throw invalid("file", "file is missing.");
    if (purpose === undefined) throw invalid("purpose", "purpose is missing.");
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
          filename: heading.filename,
          purpose,
          contentType: this.#check?.contentType ?? stated,
          createdAtMs: timeOfId(id),
          lifetimeSeconds: lifetimeSeconds(purpose),
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
    `${kind} may have at most ${most / 1024 / 1024} MB.`,
    { param: "file" },
  );
}

function invalid(param: string, message: string): GatewayError {
  return new GatewayError("invalid_body", message, { param });
}

/** Each holds two parts of 5 MB in memory while the store is slow. */
const MAX_UPLOADS = 64;
/** One organization cannot take all of them. */
const MAX_UPLOADS_OF_ORGANIZATION = 32;
const RETRY_AFTER_SECONDS = 5;

/** Bounds the uploads that run in this process at a time. */
class UploadSlots {
  readonly #slots = new SharedRoom(MAX_UPLOADS, MAX_UPLOADS_OF_ORGANIZATION);

  /** Throws 503 where all are taken. */
  take(organizationId: string): void {
    if (this.#slots.tryTake(organizationId)) return;
    throw new GatewayError("overloaded", "Too many uploads are running; try again shortly.", {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }

  free(organizationId: string): void {
    this.#slots.free(organizationId);
  }
}
