import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type Command, type CommandContext, UsageError } from "../command.ts";
import { translateLitellm } from "../import/litellm.ts";

const litellm: Command = {
  noun: "import",
  verb: "litellm",
  summary: "Prints a gateway.config.json for a config.yaml of LiteLLM's proxy.",
  options: {
    author: { value: "NAME", meaning: "author in the ids of the models (default: team)" },
  },
  positional: "FILE",
  isPositionalFile: true,
  run: async ({ options, positional }, context) => {
    if (positional === undefined) throw new UsageError("import litellm needs a file");
    const author = options.author ?? "team";
    if (!AUTHOR.test(author)) {
      throw new UsageError("--author must be letters, digits, dots, hyphens and underscores");
    }
    const { environment } = context;
    const { config, notes } = translateLitellm(readText(positional, context), {
      author,
      environment,
    });
    for (const note of notes) context.log(note);
    return { data: config, text: `${JSON.stringify(config, null, 2)}\n` };
  },
};

const AUTHOR = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

function readText(path: string, { cwd }: CommandContext): string {
  try {
    return readFileSync(resolve(cwd, path), "utf8");
  } catch {
    throw new UsageError(`${path} cannot be read`);
  }
}

export const importCommands: readonly Command[] = [litellm];
