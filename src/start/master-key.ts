import { connectDatabase, type Database, type DatabaseTarget } from "../../db/client.ts";
import type { MasterKeySettings } from "../config/access-keys.ts";
import type { GatewayConfig } from "../config.ts";
import type { Keyring } from "../lib/keyring.ts";
import { MasterKeyError } from "../master-key/errors.ts";
import { isSealed, type MasterKeys, openKeyring } from "../master-key/establish.ts";
import { MasterKeyFiles } from "./master-key-files.ts";

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

export interface OpenedKeys {
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
export async function openMasterKeys(
  settings: KeySettings,
  target: DatabaseTarget,
): Promise<OpenedKeys> {
  const sql = connectDatabase(target, { poolSize: 1, applicationName: "gateway-master-key" });
  try {
    const keys = knownMasterKeys(settings) ?? (await makeKeys(sql, settings));
    const { keyring, isBeingReplaced } = await openKeyring(sql, keys);
    return {
      keyring,
      environment: settingsOf(keys),
      notice: isBeingReplaced
        ? `the master key is being replaced: ${ROTATE} brings it to its end`
        : undefined,
    };
  } finally {
    await sql.end({ timeout: 5 });
  }
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
