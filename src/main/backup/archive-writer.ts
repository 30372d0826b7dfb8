import { createHash } from "node:crypto";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { type Pack, pack } from "tar-stream";
import { type Ending, PIECE_BYTES, pieceName, TRAILER } from "./archive.ts";

const COMPRESSION_LEVEL = 3;
const FILE_MODE = 0o600;

/**
 * Writes an archive under a temporary name. It gets its final name when it is complete and on the disk. At most two
 * pieces are in memory.
 */
export class ArchiveWriter {
  readonly #path: string;
  readonly #partPath: string;
  readonly #file: FileHandle;
  readonly #pack: Pack = pack();
  readonly #hash = createHash("sha256");
  readonly #written: Promise<void>;
  #bytes = 0;
  #failure: Error | undefined;

  private constructor(path: string, partPath: string, file: FileHandle) {
    this.#path = path;
    this.#partPath = partPath;
    this.#file = file;
    this.#written = this.#writeOut();
    this.#written.catch((error: Error) => {
      this.#failure = new Error(`cannot write the backup: ${error.message}`, { cause: error });
    });
  }

  static async create(path: string): Promise<ArchiveWriter> {
    const partPath = `${path}.${crypto.randomUUID().slice(0, 8)}.part`;
    return new ArchiveWriter(path, partPath, await open(partPath, "wx", FILE_MODE));
  }

  get bytes(): number {
    return this.#bytes;
  }

  async add(name: string, content: Uint8Array): Promise<void> {
    const header = { name, size: content.byteLength, mode: FILE_MODE };
    const added = new Promise<void>((resolve, reject) => {
      this.#pack.entry(header, Buffer.from(content), (error) =>
        error ? reject(error) : resolve(),
      );
    });
    try {
      // If the disk is full, writing fails and `added` never settles.
      await Promise.race([added, this.#written.then(() => added)]);
    } catch (error) {
      throw this.#failure ?? error;
    }
  }

  /** Adds a table or a file in compressed pieces, with their total size and digest. */
  async addItem(item: string, content: AsyncIterable<Uint8Array>): Promise<Ending> {
    const hash = createHash("sha256");
    const buffer = new Uint8Array(PIECE_BYTES);
    let filled = 0;
    let pieces = 0;
    let bytes = 0;
    const flush = async (): Promise<void> => {
      const raw = buffer.subarray(0, filled);
      hash.update(raw);
      bytes += filled;
      filled = 0;
      const compressed = await Bun.zstdCompress(raw, { level: COMPRESSION_LEVEL });
      await this.add(pieceName(item, pieces++), compressed);
    };
    for await (const chunk of content) {
      for (let copied = 0; copied < chunk.byteLength; ) {
        const part = chunk.subarray(copied, copied + PIECE_BYTES - filled);
        buffer.set(part, filled);
        filled += part.byteLength;
        copied += part.byteLength;
        if (filled === PIECE_BYTES) await flush();
      }
    }
    if (filled > 0) await flush();
    const ending: Ending = { bytes, pieces, sha256: hash.digest("hex") };
    await this.addJson(`${item}/end.json`, ending);
    return ending;
  }

  addJson(name: string, value: unknown): Promise<void> {
    return this.add(name, Buffer.from(`${JSON.stringify(value, null, 1)}\n`));
  }

  async finish(): Promise<void> {
    this.#pack.finalize();
    await this.#written;
    await this.#file.write(Buffer.from(TRAILER.text(this.#hash.digest("hex"))));
    await this.#file.sync();
    await this.#file.close();
    await rename(this.#partPath, this.#path);
    await syncFolder(dirname(this.#path));
  }

  /** Removes the unfinished archive. Never rejects. */
  async abort(): Promise<void> {
    this.#pack.destroy();
    await this.#written.catch(() => {});
    await this.#file.close().catch(() => {});
    await rm(this.#partPath, { force: true }).catch(() => {});
  }

  async #writeOut(): Promise<void> {
    for await (const chunk of this.#pack as AsyncIterable<Uint8Array>) {
      this.#hash.update(chunk);
      for (let at = 0; at < chunk.byteLength; ) {
        at += (await this.#file.write(chunk, at)).bytesWritten;
      }
      this.#bytes += chunk.byteLength;
    }
  }
}

async function syncFolder(path: string): Promise<void> {
  if (process.platform === "win32") return;
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
