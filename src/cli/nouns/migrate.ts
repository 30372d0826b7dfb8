import { migrate, readMigrationState } from "../../../db/migrate.ts";
import type { Command } from "../command.ts";
import { readOperatorSettings, withServer } from "../operator-database.ts";

const run: Command = {
  noun: "migrate",
  summary: "Brings the database's schema up to date, as every start of the gateway does.",
  options: {},
  run: async (_, { environment, cwd, log }) => {
    const settings = readOperatorSettings(environment, cwd);
    const applied = await withServer(settings, log, async (sql, target) => {
      const { pending } = await readMigrationState(sql);
      await migrate(target);
      return pending;
    });
    const text =
      applied.length === 0 ? "The schema was up to date.\n" : `Applied ${applied.join(", ")}.\n`;
    return { data: { applied }, text };
  },
};

export const migrateCommands: readonly Command[] = [run];
