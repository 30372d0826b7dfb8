import { close, open as openDescriptor, read } from "node:fs";
import { type FileHandle, mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { FolderMark, type KnownFolder } from "./folder-mark.ts";
import {
  assertStorageKey,
  type ByteRange,
  type FileStorage,
  ObjectMissingError,
  StorageError,
  type StorageWriter,
} from "./interface.ts";

const READ_BYTES = 256 * 1024;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;
const UNFINISHED = ".part";

/**
 * Files in a folder, which several instances can share on one file system. An object gets its name
 * by a rename after its bytes are synced, so it is never visible in part.
 */
export class DiskStorage implements FileStorage {
  readonly #root: string;
  readonly #mark: FolderMark;

  /** @param root absolute path; created at the first write if it does not exist */
  constructor(root: string, database: KnownFolder) {
    this.#root = root;
    this.#mark = new FolderMark(root, database);
  }

  assertOurs(): Promise<void> {
    return this.#mark.assertOurs();
  }

  write(key: string): StorageWriter {
    return new DiskWriter(this.#path(key), this.#mark);
  }

  async read(key: string, range?: ByteRange): Promise<ReadableStream<Uint8Array>> {
    const file = await OpenFile.at(this.#path(key)).catch(async (error: unknown) => {
      if (!isMissing(error)) throw failure("cannot open a stored file", error);
      await this.assertOurs();
      throw new ObjectMissingError(key);
    });
    return readFile(file, range ?? { start: 0, end: Number.POSITIVE_INFINITY });
  }

  async remove(key: string): Promise<void> {
    const path = this.#path(key);
    const wasRemoved = [await removeFile(path), await removeFile(path + UNFINISHED)];
    // Nothing was removed, so the folder may be the wrong one.
    if (!wasRemoved.includes(true)) await this.assertOurs();
  }

  async isEmpty(): Promise<boolean> {
    try {
      for (const folder of await readdir(this.#root, { withFileTypes: true })) {
        if (!folder.isDirectory()) continue;
        if ((await readdir(join(this.#root, folder.name))).length > 0) return false;
      }
      return true;
    } catch (error) {
      if (isMissing(error)) return true;
      throw failure("cannot list stored files", error);
    }
  }

  async signedUrl(): Promise<undefined> {
    return undefined;
  }

  /** Returns the path of a key. The last characters of a key are random, so folders fill evenly. */
  #path(key: string): string {
    assertStorageKey(key);
    return join(this.#root, key.slice(-2), key);
  }
}

class DiskWriter implements StorageWriter {
  readonly #path: string;
  readonly #mark: FolderMark;
  #opening: Promise<FileHandle> | undefined;
  #isFinished = false;

  constructor(path: string, mark: FolderMark) {
    this.#path = path;
    this.#mark = mark;
  }

  async write(piece: Uint8Array): Promise<void> {
    try {
      const handle = await this.#open();
      for (let written = 0; written < piece.byteLength; ) {
        written += (await handle.write(piece, written)).bytesWritten;
      }
    } catch (error) {
      throw failure("cannot write a file", error);
    }
  }

  async finish(): Promise<void> {
    try {
      const handle = await this.#open();
      await handle.sync();
      await handle.close();
      await rename(this.#path + UNFINISHED, this.#path);
      await syncFolder(dirname(this.#path));
      this.#isFinished = true;
    } catch (error) {
      throw failure("cannot write a file", error);
    }
  }

  async abort(): Promise<void> {
    if (this.#isFinished) return;
    const handle = await this.#opening?.catch(() => undefined);
    await handle?.close().catch(() => {});
    await rm(this.#path + UNFINISHED, { force: true }).catch(() => {});
    // The failure may have occurred after the rename.
    await rm(this.#path, { force: true }).catch(() => {});
  }

  #open(): Promise<FileHandle> {
    this.#opening ??= (async () => {
      await this.#mark.claim();
      await mkdir(dirname(this.#path), { recursive: true, mode: FOLDER_MODE });
      return open(this.#path + UNFINISHED, "wx", FILE_MODE);
    })();
    return this.#opening;
  }
}

/** Syncs a folder, which makes new names in it durable. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/**
 * A file that is being read. It uses a plain descriptor, because Bun ends the process when an open
 * FileHandle is garbage-collected, and the stream of a client that disconnects before the first read is
 * never cancelled.
 */
class OpenFile {
  readonly #descriptor: number;
  #isClosed = false;

  private constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  static at(path: string): Promise<OpenFile> {
    return new Promise((resolve, reject) => {
      openDescriptor(path, "r", (error, descriptor) => {
        if (error) reject(error);
        else resolve(new OpenFile(descriptor));
      });
    });
  }

  /**
   * Reads into the start of the buffer. Resolves with the number of bytes; 0 at the end of the
   * file.
   */
  read(buffer: Uint8Array, lengthBytes: number, position: number): Promise<number> {
    return new Promise((resolve, reject) => {
      read(this.#descriptor, buffer, 0, lengthBytes, position, (error, bytesRead) => {
        if (error) reject(error);
        else resolve(bytesRead);
      });
    });
  }

  /** Closes the file. Can be called more than once. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    close(this.#descriptor, () => {});
  }
}

const abandoned = new FinalizationRegistry((file: OpenFile) => file.close());

/** Closes the file when the stream has been garbage-collected. */
function closeWith(stream: ReadableStream<Uint8Array>, file: OpenFile): void {
  abandoned.register(stream, file);
}

/**
 * Returns a stream that reads on demand. An open file can be read to its end even if it is removed
 * in the meantime.
 */
function readFile(file: OpenFile, range: ByteRange): ReadableStream<Uint8Array> {
  let position = range.start;
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const lengthBytes = Math.min(READ_BYTES, range.end - position);
        const buffer = new Uint8Array(lengthBytes);
        let bytesRead = 0;
        try {
          if (lengthBytes > 0) bytesRead = await file.read(buffer, lengthBytes, position);
        } catch (error) {
          file.close();
          throw failure("cannot read a stored file", error);
        }
        position += bytesRead;
        if (bytesRead > 0) controller.enqueue(buffer.subarray(0, bytesRead));
        const isCut = bytesRead === 0 && position < range.end && Number.isFinite(range.end);
        if (bytesRead > 0 && position < range.end) return;
        file.close();
        if (isCut) controller.error(new StorageError("a stored file is shorter than it was"));
        else controller.close();
      },
      cancel() {
        file.close();
      },
    },
    { highWaterMark: 0 },
  );
  closeWith(stream, file);
  return stream;
}

/** Removes a file. Returns false if there was no such file. */
async function removeFile(path: string): Promise<boolean> {
  try {
    await rm(path);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw failure("cannot remove a stored file", error);
  }
}

function isMissing(error: unknown): boolean {
  return (error as { code?: unknown }).code === "ENOENT";
}

function failure(what: string, error: unknown): StorageError {
  return error instanceof StorageError ? error : new StorageError(what, error);
}
