import { createHash } from "node:crypto";
import { close, constants, open, read, write } from "node:fs";
import { mkdir, readdir, rm, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { GatewayError } from "../lib/errors.ts";
import { SharedRoom } from "../lib/fair-share.ts";
import type { MediaFile } from "../providers/media.ts";

const openFile = promisify(open);
/** Written at once, of bytes that a parser has; read at once, into memory that the reader gets. */
const READ_BYTES = 64 * 1024;
/** What tells the type of a file. */
const HEAD_BYTES = 8 * 1024;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;

/** Bytes of files that wait on disk for their providers, over all requests, and those of one organization. */
const MAX_BYTES = 4 * 1024 ** 3;
const MAX_BYTES_OF_ONE = MAX_BYTES / 4;
/** Files that are open; each takes a descriptor. */
const MAX_FILES = 512;
const MAX_FILES_OF_ONE = 128;
const RETRY_AFTER_SECONDS = 2;
/** What is older was left by a process that died between two system calls. */
const LEFTOVER_AGE_MS = 3_600_000;

/**
 * The files of requests on their way to a provider. Each is removed from its folder as soon as it is open,
 * and lives on as an open descriptor: however the process ends, nothing of it stays on the disk. Where the
 * system keeps open files in their folders, they are removed with their request.
 */
export class SpooledUploads {
  readonly #folder: string;
  readonly #bytes = new SharedRoom(MAX_BYTES, MAX_BYTES_OF_ONE);
  readonly #files = new SharedRoom(MAX_FILES, MAX_FILES_OF_ONE);
  #folderMade: Promise<void> | undefined;

  /** @param folder absolute; made with the first file */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** The files of one request. */
  begin(owner: string): FilesOfRequest {
    return new FilesOfRequest({
      owner,
      bytes: this.#bytes,
      files: this.#files,
      open: () => this.#open(),
    });
  }

  async #open(): Promise<OpenedFile> {
    this.#folderMade ??= this.#makeFolder();
    await this.#folderMade.catch((error: unknown) => {
      this.#folderMade = undefined;
      throw error;
    });
    const path = join(this.#folder, crypto.randomUUID());
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;
    const descriptor = await openFile(path, flags, FILE_MODE);
    const isGone = await unlink(path).then(
      () => true,
      () => false,
    );
    return { descriptor, path: isGone ? undefined : path };
  }

  async #makeFolder(): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: FOLDER_MODE });
    for (const name of await readdir(this.#folder)) {
      const path = join(this.#folder, name);
      const made = await stat(path).catch(() => undefined);
      if (made === undefined || Date.now() - made.mtimeMs < LEFTOVER_AGE_MS) continue;
      await rm(path, { force: true }).catch(() => undefined);
    }
  }
}

/** A file that waits for its provider. */
export interface PassingMedia extends MediaFile {
  /** Keeps it open while it is used by its descriptor, as a thread can. */
  lend<Result>(use: (descriptor: number) => Promise<Result>): Promise<Result>;
}

interface OpenedFile {
  readonly descriptor: number;
  /** Undefined once it is gone from its folder. */
  readonly path: string | undefined;
}

interface Room {
  readonly owner: string;
  readonly bytes: SharedRoom;
  readonly files: SharedRoom;
  open(): Promise<OpenedFile>;
}

/** What one request has on disk, until it is released. */
export class FilesOfRequest {
  readonly #room: Room;
  readonly #files: PassingFile[] = [];
  #isReleased = false;

  constructor(room: Room) {
    this.#room = room;
  }

  /** Throws 503 where too many are open, or the disk takes none. */
  async create(): Promise<PassingFile> {
    const { owner, files } = this.#room;
    if (!files.tryTake(owner)) throw tooMany();
    let opened: OpenedFile;
    try {
      opened = await this.#room.open();
    } catch (error) {
      files.free(owner);
      throw diskFailure(error);
    }
    const file = new PassingFile(opened, this.#room);
    this.#files.push(file);
    if (this.#isReleased) file.release();
    return file;
  }

  /** Nothing more is read of them, but for what is being read. May be repeated. */
  release(): void {
    this.#isReleased = true;
    for (const file of this.#files) file.release();
  }
}

/** One file: written once from its beginning, then read, perhaps several times. */
export class PassingFile {
  readonly #opened: OpenedFile;
  readonly #room: Room;
  readonly #hash = createHash("sha256");
  readonly #head: Uint8Array[] = [];
  #headBytes = 0;
  #sizeBytes = 0;
  /** Reads and writes that run, and the request itself. */
  #users = 1;
  #isReleased = false;

  constructor(opened: OpenedFile, room: Room) {
    this.#opened = opened;
    this.#room = room;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Its first bytes, as many as tell its type. */
  get head(): Uint8Array {
    return Buffer.concat(this.#head);
  }

  /** SHA-256, hex; to be asked once, when all is written. */
  digest(): string {
    return this.#hash.digest("hex");
  }

  /** Resolves when the piece is on disk; it is the caller's again then. Throws 503. */
  async write(piece: Uint8Array): Promise<void> {
    const { owner, bytes } = this.#room;
    this.#assertKept();
    if (!bytes.tryTake(owner, piece.byteLength)) throw tooMany();
    const position = this.#sizeBytes;
    this.#sizeBytes += piece.byteLength;
    this.#hash.update(piece);
    if (this.#headBytes < HEAD_BYTES) {
      // A copy, which a Buffer's own slice would not be: the piece's memory is freed once it is written.
      const kept = new Uint8Array(piece.subarray(0, HEAD_BYTES - this.#headBytes));
      this.#head.push(kept);
      this.#headBytes += kept.byteLength;
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

  media(name: string, contentType: string): PassingMedia {
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

  /** Bytes from a position on: fewer only where the file ends before. */
  async read(position: number, lengthBytes: number): Promise<Uint8Array<ArrayBuffer>> {
    this.#assertKept();
    const buffer = new Uint8Array(Math.max(0, Math.min(lengthBytes, this.#sizeBytes - position)));
    this.#users++;
    try {
      for (let done = 0; done < buffer.byteLength; ) {
        const count = await this.#read(buffer.subarray(done), position + done);
        if (count === 0) throw new Error("a file is shorter than what was written of it");
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
    this.#assertKept();
    this.#users++;
    try {
      return await use(this.#opened.descriptor);
    } finally {
      this.#leave();
    }
  }

  #assertKept(): void {
    if (this.#isReleased) throw new Error("the file was released with its request");
  }

  /** A descriptor that is closed may be another file's before a read of it is done: the last user closes it. */
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
  return new GatewayError("overloaded", "Too many files are under way; try again shortly.", {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

const FULL = new Set(["ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "EFBIG"]);

function diskFailure(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const isFull = FULL.has(String((error as { code?: unknown }).code));
  const message = isFull
    ? "The gateway has no room for the file; try again later."
    : "The gateway cannot keep the file; try again later.";
  return new GatewayError("overloaded", message, {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause: error,
  });
}
