import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { MASTER_KEY_BYTES } from "../lib/keyring.ts";

const FILE_NAME = "master-key";

/**
 * The generated master keys of a data folder. `master-key` holds the one in force. While it is replaced,
 * `master-key.next` holds the one that takes its place: written before the database first hears of it, and
 * renamed once nothing is sealed with the other. So each key that may have sealed something is in a file,
 * wherever a replacement is broken off.
 */
export class MasterKeyFiles {
  readonly path: string;
  readonly nextPath: string;

  constructor(dataDir: string) {
    this.path = join(dataDir, FILE_NAME);
    this.nextPath = `${this.path}.next`;
  }

  /** Undefined where none was made yet. Throws with one line where it holds no key. */
  current(): Uint8Array | undefined {
    return readKey(this.path);
  }

  /** Undefined where none is under way to replace the current one. */
  next(): Uint8Array | undefined {
    return readKey(this.nextPath);
  }

  /** Only for a database in which nothing is sealed. */
  makeCurrent(): Uint8Array {
    return makeKey(this.path);
  }

  /** Only while no other rotation is under way. */
  makeNext(): Uint8Array {
    return this.next() ?? makeKey(this.nextPath);
  }

  /** The next one, if it is that key, takes the place of the current one, which is gone with that. */
  promoteNext(key: Uint8Array): void {
    const next = this.next();
    if (next === undefined || !Buffer.from(key).equals(next)) return;
    renameSync(this.nextPath, this.path);
    syncFolderOf(this.path);
  }
}

function readKey(path: string): Uint8Array | undefined {
  if (!existsSync(path)) return undefined;
  const text = readFileSync(path, "utf8").trim();
  const key = Buffer.from(text, "base64");
  if (key.byteLength === MASTER_KEY_BYTES && key.toString("base64") === text) return key;
  throw new Error(
    `${path} does not hold a key of ${MASTER_KEY_BYTES} bytes; restore it from a backup`,
  );
}

/** On the disk, whole, before anything can be sealed with it. */
function makeKey(path: string): Uint8Array {
  const key = crypto.getRandomValues(new Uint8Array(MASTER_KEY_BYTES));
  const draft = `${path}.new`;
  mkdirSync(join(path, ".."), { recursive: true });
  const file = openSync(draft, "w", 0o600);
  try {
    chmodSync(draft, 0o600);
    writeSync(file, `${Buffer.from(key).toString("base64")}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(draft, path);
  syncFolderOf(path);
  return key;
}

/** Makes a rename last; Windows has no such thing for folders. */
function syncFolderOf(path: string): void {
  if (process.platform === "win32") return;
  const folder = openSync(join(path, ".."), "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
