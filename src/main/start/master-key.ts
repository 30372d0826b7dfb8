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
import type { Database } from "../../../db/client.ts";
import { type Keyring, MASTER_KEY_BYTES } from "../../lib/keyring.ts";
import type { MasterKeySettings } from "../../platform/config/access-keys.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import {
  isSealed,
  MasterKeyError,
  type MasterKeys,
  openKeyring,
} from "../../platform/master-key/master-key.ts";

const ROTATE = "`bun run cli master-key rotate`";

type KeySettings = MasterKeySettings & Pick<GatewayConfig, "dataDir">;

/** The configured master keys, or those in the data folder; undefined where none was made yet. */
export function knownMasterKeys(settings: KeySettings): MasterKeys | undefined {
  const { masterKey, previousMasterKey, dataDir } = settings;
  if (masterKey !== undefined) {
    return {
      main: Buffer.from(masterKey, "base64"),
      others: previousMasterKey === undefined ? [] : [Buffer.from(previousMasterKey, "base64")],
      hasNext: false,
      source: "GATEWAY_MASTER_KEY",
      remedy: `set the one that it was started with before, or name that one in GATEWAY_MASTER_KEY_PREVIOUS and run ${ROTATE} to replace it`,
    };
  }
  const files = new MasterKeyFiles(dataDir);
  // In this order: the next one may become the current one in between.
  const next = files.next();
  const current = files.current();
  if (current === undefined) return undefined;
  const isOther = next !== undefined && !Buffer.from(next).equals(current);
  return {
    main: current,
    others: isOther ? [next] : [],
    hasNext: isOther,
    source: `what ${files.path} holds`,
    remedy: "restore that file from a backup, or set GATEWAY_MASTER_KEY to the right one",
  };
}

interface OpenedKeys {
  readonly keyring: Keyring;
  /** The same as settings, for workers. */
  readonly environment: Readonly<Record<string, string>>;
  /** A rotation has not come to its end. */
  readonly notice: string | undefined;
}

/**
 * The keys that encrypt what is kept at rest, proven against the database: the configured ones, or one made
 * for the data folder once. Throws with one line where they are not those of the database.
 */
export async function openMasterKeys(settings: KeySettings, sql: Database): Promise<OpenedKeys> {
  const keys = knownMasterKeys(settings) ?? (await makeKeys(sql, settings));
  const { keyring, isBeingReplaced } = await openKeyring(sql, keys);
  return {
    keyring,
    environment: settingsOf(keys),
    notice: isBeingReplaced
      ? `the master key is being replaced: ${ROTATE} brings it to its end`
      : undefined,
  };
}

/** A key made in the place of one that is lost would open nothing, and hide the loss. */
async function makeKeys(sql: Database, settings: KeySettings): Promise<MasterKeys> {
  const files = new MasterKeyFiles(settings.dataDir);
  if (await isSealed(sql)) {
    throw new MasterKeyError(
      `${files.path} is missing, which holds the master key that this database is sealed with: restore it from a backup, or set GATEWAY_MASTER_KEY`,
    );
  }
  files.makeCurrent();
  return knownMasterKeys(settings)!;
}

function settingsOf({ main, others }: MasterKeys): Record<string, string> {
  const [previous] = others;
  return {
    GATEWAY_MASTER_KEY: Buffer.from(main).toString("base64"),
    ...(previous && { GATEWAY_MASTER_KEY_PREVIOUS: Buffer.from(previous).toString("base64") }),
  };
}

const FILE_NAME = "master-key";

/**
 * The generated master keys of a data folder. `master-key` holds the one in force. While it is replaced,
 * `master-key.next` holds the one that takes its place: written before the database first learns of it, and
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
