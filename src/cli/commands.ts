import type { Command } from "./command.ts";
import { creditCommands } from "./nouns/credits.ts";
import { doctorCommands } from "./nouns/doctor.ts";
import { keyCommands } from "./nouns/keys.ts";
import { masterKeyCommands } from "./nouns/master-key.ts";
import { migrateCommands } from "./nouns/migrate.ts";
import { modelCommands } from "./nouns/models.ts";
import { organizationCommands } from "./nouns/org.ts";

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [
  ...organizationCommands,
  ...keyCommands,
  ...creditCommands,
  ...masterKeyCommands,
  ...migrateCommands,
  ...modelCommands,
  ...doctorCommands,
];
