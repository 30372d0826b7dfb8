import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { promisify } from "node:util";
import { zstdDecompress } from "node:zlib";
import { extract } from "tar-stream";
import {
  ArchiveError,
  type Ending,
  FORMAT,
  type Head,
  MAX_MEMBER_BYTES,
  type Manifest,
  PIECE_BYTES,
  pieceName,
  TRAILER,
} from "./archive.ts";

const READ_BYTES = 256 * 1024;
const decompress = promisify(zstdDecompress);

/** A table or a file. Read its bytes to their end before you request the next item. */
export interface ArchivedItem {
  readonly kind: "tables" | "files";
  readonly name: string;
  /** Yields the bytes of the item. Throws ArchiveError at the end if they differ from the archived bytes. */
  bytes(): AsyncGenerator<Uint8Array>;
}

export interface VerifiedArchive {
  readonly tarBytes: number;
  /** SHA-256 of the tar. Archives with equal digests are equal. */
  readonly digest: string;
}

/** Reads the whole archive. Throws ArchiveError if any byte differs from the written one. */
export async function verifyArchive(path: string): Promise<VerifiedArchive> {
  const file = await open(path, "r");
  try {
    const tarBytes = (await file.stat()).size - TRAILER.bytes;
    if (tarBytes <= 0) throw damaged(path);
    const trailer = Buffer.alloc(TRAILER.bytes);
    await file.read(trailer, 0, TRAILER.bytes, tarBytes);
    const hash = createHash("sha256");
    for await (const chunk of createReadStream(path, {
      end: tarBytes - 1,
      highWaterMark: READ_BYTES,
    })) {
      hash.update(chunk as Buffer);
    }
    const digest = hash.digest("hex");
    if (trailer.toString("latin1") !== TRAILER.text(digest)) throw damaged(path);
    return { tarBytes, digest };
  } finally {
    await file.close();
  }
}

function damaged(path: string): ArchiveError {
  return new ArchiveError(
    `${path} is not a complete backup: it was cut off, changed, or never finished. Nothing was written`,
  );
}

interface Member {
  readonly name: string;
  readonly content: Buffer;
}

/** Reads a verified archive in its order: the head, tables and files, the manifest. */
export class ArchiveReader {
  readonly #members: AsyncGenerator<Member>;
  #next: Member | undefined;
  /** The endings of the tables that were read. */
  readonly tables = new Map<string, Ending>();
  files = 0;

  constructor(path: string, tarBytes: number) {
    this.#members = membersOf(path, tarBytes);
  }

  async head(): Promise<Head> {
    const head = jsonOf<Head>(await this.#take("head.json"));
    if (head.format === FORMAT) return head;
    throw new ArchiveError(
      `version ${head.version} of the gateway made the backup, in another format: restore it with that version`,
    );
  }

  async *items(): AsyncGenerator<ArchivedItem> {
    for (;;) {
      const member = await this.#peek();
      const [kind, name] = member.name.split("/");
      if ((kind !== "tables" && kind !== "files") || name === undefined) return;
      yield { kind, name, bytes: () => this.#bytesOf(kind, name) };
      if ((await this.#peek()).name.startsWith(`${kind}/${name}/`)) {
        throw new Error(`${kind}/${name} was not read to its end`);
      }
    }
  }

  /** Reads the manifest, after the last item. */
  async manifest(): Promise<Manifest> {
    return jsonOf<Manifest>(await this.#take("manifest.json"));
  }

  async close(): Promise<void> {
    await this.#members.return(undefined);
  }

  async *#bytesOf(kind: ArchivedItem["kind"], name: string): AsyncGenerator<Uint8Array> {
    const item = `${kind}/${name}`;
    const hash = createHash("sha256");
    let bytes = 0;
    let pieces = 0;
    while ((await this.#peek()).name !== `${item}/end.json`) {
      const { content } = await this.#take(pieceName(item, pieces++));
      // Bounded, because some kilobytes can expand to gigabytes.
      const raw = await decompress(content, { maxOutputLength: PIECE_BYTES }).catch(() => {
        throw wrongItem(item);
      });
      if (raw.byteLength === 0) throw wrongItem(item);
      hash.update(raw);
      bytes += raw.byteLength;
      yield raw;
    }
    const ending = jsonOf<Ending>(await this.#take(`${item}/end.json`));
    const isWhole =
      ending.bytes === bytes && ending.pieces === pieces && ending.sha256 === hash.digest("hex");
    if (!isWhole) throw wrongItem(item);
    if (kind === "files") this.files++;
    else this.tables.set(name, ending);
  }

  async #peek(): Promise<Member> {
    if (this.#next === undefined) {
      const { value, done } = await this.#members.next();
      if (done) throw new ArchiveError("the backup ends in the middle");
      this.#next = value;
    }
    return this.#next;
  }

  async #take(name: string): Promise<Member> {
    const member = await this.#peek();
    if (member.name !== name) {
      throw new ArchiveError(`the backup has ${member.name} instead of ${name}`);
    }
    this.#next = undefined;
    return member;
  }
}

function wrongItem(item: string): ArchiveError {
  return new ArchiveError(`${item} of the backup differs from the written data`);
}

function jsonOf<Value>({ content, name }: Member): Value {
  try {
    return JSON.parse(content.toString("utf8")) as Value;
  } catch {
    throw new ArchiveError(`${name} of the backup is not JSON`);
  }
}

async function* membersOf(path: string, tarBytes: number): AsyncGenerator<Member> {
  const source = createReadStream(path, { end: tarBytes - 1, highWaterMark: READ_BYTES });
  const entries = extract();
  source.on("error", (error) => entries.destroy(error));
  source.pipe(entries);
  try {
    for await (const entry of entries) {
      const { name, size = 0 } = entry.header;
      if (size > MAX_MEMBER_BYTES) throw new ArchiveError(`${name} of the backup is too large`);
      const pieces: Buffer[] = [];
      for await (const piece of entry) pieces.push(piece as Buffer);
      yield { name, content: Buffer.concat(pieces) };
    }
  } finally {
    source.destroy();
    entries.destroy();
  }
}
