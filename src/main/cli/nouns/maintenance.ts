import { migrate, readMigrationState } from "../../../../db/migrate.ts";
import { readMasterKeys } from "../../../platform/config/access-keys.ts";
import { refuse } from "../../../platform/config/config-error.ts";
import { EnvironmentReader } from "../../../platform/config/environment.ts";
import {
  MasterKeyError,
  type MasterKeys,
  type RotatingKeys,
  type Rotation,
  rotateMasterKey,
} from "../../../platform/master-key/master-key.ts";
import { knownMasterKeys, MasterKeyFiles } from "../../start/master-key.ts";
import type { Command, CommandContext, Report } from "../command.ts";
import {
  type OperatorSettings,
  readOperatorSettings,
  withDatabase,
  withServer,
} from "../operator-database.ts";

const rotate: Command = {
  noun: "master-key",
  verb: "rotate",
  summary: "Replaces GATEWAY_MASTER_KEY_PREVIOUS, or a generated key, and reseals its values.",
  options: {},
  run: (_, context) =>
    withDatabase(context, async (sql, settings) => {
      const { keys, afterwards } = rotatingKeys(context, settings);
      const { interrupted, log } = context;
      return reportOf(await rotateMasterKey(sql, { keys, interrupted, log }), afterwards);
    }),
};

interface Source {
  readonly keys: RotatingKeys;
  /** The remaining steps of the operator. */
  readonly afterwards: string;
}

function rotatingKeys({ environment }: CommandContext, settings: OperatorSettings): Source {
  const { databaseUrl, dataDir } = settings;
  const configured = readMasterKeys(new EnvironmentReader(environment), databaseUrl);
  const files = new MasterKeyFiles(dataDir);
  const known = (): MasterKeys => {
    const keys = knownMasterKeys({ ...configured, dataDir });
    if (keys !== undefined) return keys;
    throw new MasterKeyError(`no master key to replace: ${files.path} is missing`);
  };
  if (configured.masterKey === undefined) {
    return {
      keys: {
        knownKeys: known,
        target: () => files.makeNext(),
        settle: (target) => files.promoteNext(target),
      },
      afterwards: `The new key is in ${files.path}. Earlier backups need the old key.`,
    };
  }
  if (configured.previousMasterKey === undefined) {
    const accepted = "the current key, and GATEWAY_MASTER_KEY the new one";
    throw refuse("GATEWAY_MASTER_KEY_PREVIOUS", undefined, accepted);
  }
  return {
    keys: { knownKeys: known, target: () => known().main, settle: () => {} },
    afterwards:
      "You can unset GATEWAY_MASTER_KEY_PREVIOUS after an hour, when its download links have expired. Earlier backups need that key.",
  };
}

function reportOf({ kind, resealed }: Rotation, afterwards: string): Report {
  const { values, unreadable } = resealed;
  const lines = [
    kind === "done"
      ? "The new master key was already in use, and no value was sealed with the old one."
      : `The new master key is in use; ${values} sealed ${values === 1 ? "value was" : "values were"} resealed.`,
    ...(unreadable === 0
      ? []
      : [
          `${unreadable} values could be opened with neither key and are unchanged: they were already lost.`,
        ]),
    afterwards,
  ];
  return { data: { state: kind, resealed: values, unreadable }, text: `${lines.join("\n")}\n` };
}

export const masterKeyCommands: readonly Command[] = [rotate];

const run: Command = {
  noun: "migrate",
  summary: "Brings the database's schema up to date, as every start of the gateway does.",
  options: {},
  run: async (_, { environment, cwd, log }) => {
    const settings = readOperatorSettings(environment, cwd);
    const applied = await withServer(settings, log, async (sql, target) => {
      const { pending } = await readMigrationState(sql);
      await migrate(target, log);
      return pending;
    });
    const text =
      applied.length === 0 ? "The schema was up to date.\n" : `Applied ${applied.join(", ")}.\n`;
    return { data: { applied }, text };
  },
};

export const migrateCommands: readonly Command[] = [run];
