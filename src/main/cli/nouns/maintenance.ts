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
  summary: "Replaces GATEWAY_MASTER_KEY_PREVIOUS, or a generated key, and reseals what it sealed.",
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
  /** What is left to the operator. */
  readonly afterwards: string;
}

function rotatingKeys({ environment }: CommandContext, settings: OperatorSettings): Source {
  const { databaseUrl, dataDir } = settings;
  const configured = readMasterKeys(new EnvironmentReader(environment), databaseUrl);
  const files = new MasterKeyFiles(dataDir);
  const known = (): MasterKeys => {
    const keys = knownMasterKeys({ ...configured, dataDir });
    if (keys !== undefined) return keys;
    throw new MasterKeyError(`there is no master key to be replaced: ${files.path} is missing`);
  };
  if (configured.masterKey === undefined) {
    return {
      keys: {
        known,
        target: () => files.makeNext(),
        settle: (target) => files.promoteNext(target),
      },
      afterwards: `The new key is in ${files.path}; backups from before need the one before.`,
    };
  }
  if (configured.previousMasterKey === undefined) {
    const accepted =
      "the key in force, with the one that is to take its place in GATEWAY_MASTER_KEY";
    throw refuse("GATEWAY_MASTER_KEY_PREVIOUS", undefined, accepted);
  }
  return {
    keys: { known, target: () => known().main, settle: () => {} },
    afterwards:
      "GATEWAY_MASTER_KEY_PREVIOUS can be unset once download links of the last hour are not needed any more; backups from before need that key.",
  };
}

function reportOf({ kind, resealed }: Rotation, afterwards: string): Report {
  const { values, unreadable } = resealed;
  const lines = [
    kind === "done"
      ? "The new master key was in force already, and nothing was left of the one before."
      : `The new master key is in force; ${values} sealed ${values === 1 ? "value was" : "values were"} resealed.`,
    ...(unreadable === 0
      ? []
      : [
          `${unreadable} could be opened with neither key and stay as they are: they were lost before.`,
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
