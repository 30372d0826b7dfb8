import { readFileSync, statSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { type Command, type CommandContext, UsageError } from "../command.ts";
import { translateLitellm } from "../import/litellm.ts";

const litellm: Command = {
  noun: "import",
  verb: "litellm",
  summary: "Prints a gateway.config.json for a config.yaml of LiteLLM's proxy.",
  options: {
    author: { value: "NAME", meaning: "author in the ids of the models (default: team)" },
    output: { value: "FILE", meaning: "new file to write, readable only by its owner" },
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
    const printed = `${JSON.stringify(config, null, 2)}\n`;
    if (options.output === undefined) return { data: config, text: printed };
    writeNewFile(options.output, printed, context);
    const counts = { providers: config.providers?.length ?? 0, models: config.models?.length ?? 0 };
    return {
      data: { output: options.output, ...counts },
      text: `${options.output}: ${counts.providers} providers, ${counts.models} models\n`,
    };
  },
};

const AUTHOR = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** Largest file that is imported. Configurations have some kilobytes. */
const MAX_FILE_BYTES = 4 * 1024 * 1024;
const FILE_MODE = 0o600;

function readText(path: string, { cwd }: CommandContext): string {
  let size: number;
  try {
    const file = resolve(cwd, path);
    size = statSync(file).size;
    if (size <= MAX_FILE_BYTES) return readFileSync(file, "utf8");
  } catch {
    throw new UsageError(`${path} cannot be read`);
  }
  throw new UsageError(`${path} has ${size} bytes, but at most ${MAX_FILE_BYTES} are imported`);
}

/** Writes a file that can contain keys. An existing file is never replaced: its mode could be wider. */
function writeNewFile(path: string, text: string, { cwd }: CommandContext): void {
  try {
    writeFileSync(resolve(cwd, path), text, { flag: "wx", mode: FILE_MODE });
  } catch (cause) {
    const isPresent = (cause as NodeJS.ErrnoException).code === "EEXIST";
    throw new UsageError(`${path} ${isPresent ? "already exists" : "cannot be written"}`);
  }
}

export const importCommands: readonly Command[] = [litellm];
