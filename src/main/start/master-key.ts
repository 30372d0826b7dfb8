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
import { CLI } from "../../lib/command-line.ts";
import { type Keyring, MASTER_KEY_BYTES } from "../../lib/keyring.ts";
import type { MasterKeySettings } from "../../platform/config/access-keys.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import {
  isSealed,
  MasterKeyError,
  type MasterKeys,
  openKeyring,
} from "../../platform/master-key/master-key.ts";

const ROTATE = `"${CLI} master-key rotate"`;

type KeySettings = MasterKeySettings & Pick<GatewayConfig, "dataDir">;

/** Returns the configured master keys, or else the keys in the data folder. Returns undefined if no key exists yet. */
export function knownMasterKeys(settings: KeySettings): MasterKeys | undefined {
  const { masterKey, previousMasterKey, dataDir } = settings;
  if (masterKey !== undefined) {
    return {
      main: Buffer.from(masterKey, "base64"),
      others: previousMasterKey === undefined ? [] : [Buffer.from(previousMasterKey, "base64")],
      hasNext: false,
      source: "GATEWAY_MASTER_KEY",
      remedy: `set the previous key again, or put it into GATEWAY_MASTER_KEY_PREVIOUS and run ${ROTATE} to replace it`,
    };
  }
  const files = new MasterKeyFiles(dataDir);
  // The next key is read first, because a rotation may rename it to the current key in between.
  const next = files.next();
  const current = files.current();
  if (current === undefined) return undefined;
  const isOther = next !== undefined && !Buffer.from(next).equals(current);
  return {
    main: current,
    others: isOther ? [next] : [],
    hasNext: isOther,
    source: `the key in ${files.path}`,
    remedy: "restore that file from a backup, or set GATEWAY_MASTER_KEY to the right one",
  };
}

interface OpenedKeys {
  readonly keyring: Keyring;
  /** The keys as environment variables, for workers. */
  readonly environment: Readonly<Record<string, string>>;
  /** A message for the log if a rotation is unfinished. */
  readonly notice: string | undefined;
}

/**
 * Opens the master keys and checks them against the database: the configured keys, or the one that the first start
 * generates in the data folder. Throws an error of one line if they are not the keys of the database.
 */
export async function openMasterKeys(settings: KeySettings, sql: Database): Promise<OpenedKeys> {
  const keys = knownMasterKeys(settings) ?? (await makeKeys(sql, settings));
  const { keyring, isBeingReplaced } = await openKeyring(sql, keys);
  return {
    keyring,
    environment: settingsOf(keys),
    notice: isBeingReplaced
      ? `the master key is being replaced: run ${ROTATE} to finish`
      : undefined,
  };
}

/** Generates a key. Throws if the database has sealed values: a new key could not open them, and would hide the loss. */
async function makeKeys(sql: Database, settings: KeySettings): Promise<MasterKeys> {
  const files = new MasterKeyFiles(settings.dataDir);
  if (await isSealed(sql)) {
    throw new MasterKeyError(
      `the master key of this database is missing (${files.path}): restore the file from a backup, or set GATEWAY_MASTER_KEY`,
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
 * The generated master keys of a data folder. `master-key` holds the current key. During a rotation,
 * `master-key.next` holds the next key: it is written before the database records it, and renamed when no value is
 * sealed with the old key. So each key that may have sealed a value is in a file, whenever a rotation is interrupted.
 */
export class MasterKeyFiles {
  readonly path: string;
  readonly nextPath: string;

  constructor(dataDir: string) {
    this.path = join(dataDir, FILE_NAME);
    this.nextPath = `${this.path}.next`;
  }

  /** Returns undefined if no key exists yet. Throws an error of one line if the file holds no key. */
  current(): Uint8Array | undefined {
    return readKey(this.path);
  }

  /** Returns the next key, or undefined if no rotation is under way. */
  next(): Uint8Array | undefined {
    return readKey(this.nextPath);
  }

  /** Generates the first key. Only for a database without sealed values. */
  makeCurrent(): Uint8Array {
    return makeKey(this.path);
  }

  /** Generates the next key. Only if no other rotation is under way. */
  makeNext(): Uint8Array {
    return this.next() ?? makeKey(this.nextPath);
  }

  /** Replaces the current key by the next one if that equals `key`. The old key is deleted. */
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

/** Writes a key completely to the disk before a value can be sealed with it. */
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

/** Makes a rename durable. Windows cannot sync folders. */
function syncFolderOf(path: string): void {
  if (process.platform === "win32") return;
  const folder = openSync(join(path, ".."), "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
