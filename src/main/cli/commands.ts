import type { Command } from "./command.ts";
import { completionCommand } from "./completion/command.ts";
import { backupCommands } from "./nouns/backup.ts";
import { configCommands } from "./nouns/config.ts";
import { creditCommands } from "./nouns/credits.ts";
import { doctorCommands } from "./nouns/doctor.ts";
import { importCommands } from "./nouns/import.ts";
import { keyCommands } from "./nouns/keys.ts";
import { masterKeyCommands, migrateCommands } from "./nouns/maintenance.ts";
import { modelCommands } from "./nouns/models.ts";
import { organizationCommands } from "./nouns/org.ts";

const OPERATOR_COMMANDS: readonly Command[] = [
  ...organizationCommands,
  ...keyCommands,
  ...creditCommands,
  ...masterKeyCommands,
  ...migrateCommands,
  ...backupCommands,
  ...modelCommands,
  ...configCommands,
  ...importCommands,
  ...doctorCommands,
];

/** All commands, in the order of the help. */
export const COMMANDS: readonly Command[] = [
  ...OPERATOR_COMMANDS,
  completionCommand(OPERATOR_COMMANDS),
];
