import { CLI } from "../../../lib/command-line.ts";
import { type Command, UsageError } from "../command.ts";
import { readChoice } from "../read-options.ts";
import { bashScript } from "./bash.ts";
import { completionTree } from "./completion-tree.ts";
import { fishScript } from "./fish.ts";
import { zshScript } from "./zsh.ts";

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;
const SHELLS = ["bash", "zsh", "fish"] as const;
/** The command of the package, which runs operator's commands after the word `cli`. */
const PACKAGE_COMMAND = "model-gateway";
const COMMAND_NAME = /^[A-Za-z][\w-]{0,63}$/;

/** Returns the command that prints the completion of `commands` for a shell. */
export function completionCommand(commands: readonly Command[]): Command {
  const command: Command = {
    noun: "completion",
    summary: `Prints the completion of these commands for a shell: source <(${CLI} completion bash)`,
    options: {
      command: {
        value: "NAME",
        meaning: `alias of "${CLI}" to complete; default: ${PACKAGE_COMMAND} cli`,
      },
    },
    positional: SHELLS.join("|"),
    run: async ({ options, positional }) => {
      const shell = readChoice("shell", positional, SHELLS);
      if (shell === undefined) throw new UsageError(`completion needs ${SHELLS.join(", ")}`);
      const alias = options.command;
      if (alias !== undefined && !COMMAND_NAME.test(alias)) {
        throw new UsageError("--command must be a name of letters, digits, - and _");
      }
      const tree = completionTree([...commands, command], alias === undefined ? "cli" : undefined);
      const script = SCRIPTS[shell](alias ?? PACKAGE_COMMAND, tree);
      return { data: { shell, script }, text: script };
    },
  };
  return command;
}
