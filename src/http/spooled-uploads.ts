import { createHash } from "node:crypto";
import { close, constants, open, read, write } from "node:fs";
import { mkdir, readdir, rm, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { GatewayError, overloaded } from "../lib/errors.ts";
import { SharedRoom } from "../lib/fair-share.ts";
import type { MediaFile } from "../providers/media.ts";

const openFile = promisify(open);
/** Bytes that a stream reads at a time. */
const READ_BYTES = 64 * 1024;
/** Bytes at the start of a file from which its type is detected. */
const HEAD_BYTES = 8 * 1024;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;

/** Bytes of spooled files, over all requests. */
const MAX_BYTES = 4 * 1024 ** 3;
/** Bytes of spooled files of one organization. */
const MAX_BYTES_OF_ONE = MAX_BYTES / 4;
/** Open files. Each uses a descriptor. */
const MAX_FILES = 512;
const MAX_FILES_OF_ONE = 128;
const RETRY_AFTER_SECONDS = 2;
/**
 * Milliseconds after which a file counts as left by a process that crashed between two system
 * calls.
 */
const LEFTOVER_AGE_MS = 3_600_000;

/**
 * Spools the files of requests that go to a provider. Each file is unlinked as soon as it is open
 * and lives on as an open descriptor, so nothing stays on the disk, however the process ends. If
 * the system cannot unlink open files, they are removed with their request.
 */
export class SpooledUploads {
  readonly #folder: string;
  readonly #bytes = new SharedRoom(MAX_BYTES, MAX_BYTES_OF_ONE);
  readonly #files = new SharedRoom(MAX_FILES, MAX_FILES_OF_ONE);
  #folderCreated: Promise<void> | undefined;

  /** @param folder absolute path; created with the first file */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Returns a new collection for the files of one request. */
  begin(owner: string): FilesOfRequest {
    return new FilesOfRequest({
      owner,
      bytes: this.#bytes,
      files: this.#files,
      open: () => this.#open(),
    });
  }

  async #open(): Promise<OpenedFile> {
    this.#folderCreated ??= this.#createFolder();
    await this.#folderCreated.catch((error: unknown) => {
      this.#folderCreated = undefined;
      throw error;
    });
    const path = join(this.#folder, crypto.randomUUID());
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;
    const descriptor = await openFile(path, flags, FILE_MODE);
    const isUnlinked = await unlink(path).then(
      () => true,
      () => false,
    );
    return { descriptor, path: isUnlinked ? undefined : path };
  }

  async #createFolder(): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: FOLDER_MODE });
    for (const name of await readdir(this.#folder)) {
      const path = join(this.#folder, name);
      const stats = await stat(path).catch(() => undefined);
      if (stats === undefined || Date.now() - stats.mtimeMs < LEFTOVER_AGE_MS) continue;
      await rm(path, { force: true }).catch(() => undefined);
    }
  }
}

/** A spooled file. */
export interface SpooledMedia extends MediaFile {
  /** Keeps the file open while `use` works with its descriptor, for example in a worker thread. */
  lend<Result>(use: (descriptor: number) => Promise<Result>): Promise<Result>;
}

interface OpenedFile {
  readonly descriptor: number;
  /** The path of the file. Undefined after the file was unlinked. */
  readonly path: string | undefined;
}

interface Room {
  readonly owner: string;
  readonly bytes: SharedRoom;
  readonly files: SharedRoom;
  open(): Promise<OpenedFile>;
}

/** The spooled files of one request, until they are released. */
export class FilesOfRequest {
  readonly #room: Room;
  readonly #files: SpooledFile[] = [];
  #isReleased = false;

  constructor(room: Room) {
    this.#room = room;
  }

  /** Creates a file. Throws 503 if too many files are open or the disk accepts no file. */
  async create(): Promise<SpooledFile> {
    const { owner, files } = this.#room;
    if (!files.tryTake(owner)) throw tooMany();
    let opened: OpenedFile;
    try {
      opened = await this.#room.open();
    } catch (error) {
      files.free(owner);
      throw diskFailure(error);
    }
    const file = new SpooledFile(opened, this.#room);
    this.#files.push(file);
    if (this.#isReleased) file.release();
    return file;
  }

  /**
   * Releases the files. Running reads complete, and later reads fail. Can be called more than once.
   */
  release(): void {
    this.#isReleased = true;
    for (const file of this.#files) file.release();
  }
}

/** A file that is written once, from its beginning, and can then be read several times. */
export class SpooledFile {
  readonly #opened: OpenedFile;
  readonly #room: Room;
  readonly #hash = createHash("sha256");
  readonly #head: Uint8Array[] = [];
  #headBytes = 0;
  #sizeBytes = 0;
  /** The number of running reads and writes, plus one for the request itself. */
  #users = 1;
  #isReleased = false;

  constructor(opened: OpenedFile, room: Room) {
    this.#opened = opened;
    this.#room = room;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** The first bytes of the file, from which its type is detected. */
  get head(): Uint8Array {
    return Buffer.concat(this.#head);
  }

  /** Returns the SHA-256 in hex. To be called once, after the last write. */
  digest(): string {
    return this.#hash.digest("hex");
  }

  /**
   * Appends a piece. Resolves when the piece is on disk; the caller can then reuse its memory.
   * Throws 503 if the spooled files of the organization or of all requests are too large, or the disk
   * fails.
   */
  async write(piece: Uint8Array): Promise<void> {
    const { owner, bytes } = this.#room;
    this.#assertOpen();
    if (!bytes.tryTake(owner, piece.byteLength)) throw tooMany();
    const position = this.#sizeBytes;
    this.#sizeBytes += piece.byteLength;
    this.#hash.update(piece);
    if (this.#headBytes < HEAD_BYTES) {
      // A copy, because the memory of the piece is freed after the write. A slice of a Buffer would
      // share it.
      const copy = new Uint8Array(piece.subarray(0, HEAD_BYTES - this.#headBytes));
      this.#head.push(copy);
      this.#headBytes += copy.byteLength;
    }
    this.#users++;
    try {
      for (let done = 0; done < piece.byteLength; ) {
        done += await this.#write(piece.subarray(done), position + done);
      }
    } catch (error) {
      throw diskFailure(error);
    } finally {
      this.#leave();
    }
  }

  media(name: string, contentType: string): SpooledMedia {
    const { sizeBytes } = this;
    return {
      name,
      contentType,
      sizeBytes,
      stream: () => this.#stream(),
      bytes: () => this.read(0, sizeBytes),
      lend: (use) => this.#lend(use),
    };
  }

  /** Returns the bytes from a position. Returns fewer only if the file ends before. */
  async read(position: number, lengthBytes: number): Promise<Uint8Array<ArrayBuffer>> {
    this.#assertOpen();
    const buffer = new Uint8Array(Math.max(0, Math.min(lengthBytes, this.#sizeBytes - position)));
    this.#users++;
    try {
      for (let done = 0; done < buffer.byteLength; ) {
        const count = await this.#read(buffer.subarray(done), position + done);
        if (count === 0)
          throw new Error("the file is shorter than the bytes that were written to it");
        done += count;
      }
      return buffer;
    } finally {
      this.#leave();
    }
  }

  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#leave();
  }

  #stream(): ReadableStream<Uint8Array> {
    let position = 0;
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const piece = await this.read(position, READ_BYTES);
          position += piece.byteLength;
          if (piece.byteLength > 0) controller.enqueue(piece);
          if (position >= this.#sizeBytes) controller.close();
        },
      },
      { highWaterMark: 0 },
    );
  }

  async #lend<Result>(use: (descriptor: number) => Promise<Result>): Promise<Result> {
    this.#assertOpen();
    this.#users++;
    try {
      return await use(this.#opened.descriptor);
    } finally {
      this.#leave();
    }
  }

  #assertOpen(): void {
    if (this.#isReleased) throw new Error("the file was released with its request");
  }

  /**
   * Removes a user; the last one closes the descriptor. A closed descriptor can be reused for
   * another file while a read of it is still running.
   */
  #leave(): void {
    if (--this.#users > 0) return;
    const { descriptor, path } = this.#opened;
    const { owner, bytes, files } = this.#room;
    close(descriptor, () => {
      if (path !== undefined) rm(path, { force: true }).catch(() => undefined);
    });
    files.free(owner);
    bytes.free(owner, this.#sizeBytes);
  }

  #write(piece: Uint8Array, position: number): Promise<number> {
    return new Promise((resolve, reject) => {
      write(this.#opened.descriptor, piece, 0, piece.byteLength, position, (error, count) => {
        if (error) reject(error);
        else resolve(count);
      });
    });
  }

  #read(buffer: Uint8Array, position: number): Promise<number> {
    return new Promise((resolve, reject) => {
      read(this.#opened.descriptor, buffer, 0, buffer.byteLength, position, (error, count) => {
        if (error) reject(error);
        else resolve(count);
      });
    });
  }
}

function tooMany(): GatewayError {
  return overloaded("Too many files are being uploaded; try again shortly.", RETRY_AFTER_SECONDS);
}

const FULL = new Set(["ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "EFBIG"]);

function diskFailure(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const isFull = FULL.has(String((error as { code?: unknown }).code));
  const message = isFull
    ? "The gateway has no disk space for the file; try again later."
    : "The gateway cannot store the file; try again later.";
  return new GatewayError("overloaded", message, {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause: error,
  });
}
