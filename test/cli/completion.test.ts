import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { COMMANDS } from "../../src/main/cli/commands.ts";
import { runCliHere } from "./cli-runs.ts";

const NOUNS = [...new Set(COMMANDS.map(({ noun }) => noun))];
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "gateway-completion-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Writes the completion script of a shell and returns its path. */
async function scriptOf(shell: string, ...options: string[]): Promise<string> {
  const { exitCode, stdout } = await runCliHere({}, "completion", shell, ...options);
  expect(exitCode).toBe(0);
  const path = join(folder, `${shell}${options.join("")}`);
  writeFileSync(path, stdout);
  return path;
}

function output(command: readonly string[]): string[] {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...command], {
    cwd: folder,
    env: { ...process.env, HOME: folder },
  });
  expect({ exitCode, stderr: stderr.toString() }).toEqual({ exitCode: 0, stderr: "" });
  return stdout.toString().split("\n").filter(Boolean);
}

describe.skipIf(Bun.which("bash") === null)("completion of bash", () => {
  /** Returns the words that bash offers in place of the last word. */
  async function offered(line: readonly string[], ...options: string[]): Promise<string[]> {
    const script = await scriptOf("bash", ...options);
    const run = `source "$1"; shift
      COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
      $(complete -p "$1" | sed 's/.*-F \\([^ ]*\\).*/\\1/')
      printf '%s\\n' "\${COMPREPLY[@]}"`;
    return output(["bash", "--norc", "-c", run, "bash", script, ...line]);
  }

  test("offers nouns, then verbs, then options and their values", async () => {
    const program = "model-gateway";
    expect(await offered([program, ""])).toEqual(["cli", "--workers", "--version", "--help"]);
    expect(await offered([program, "cli", ""])).toEqual([...NOUNS, "--help", "--version"]);
    expect(await offered([program, "cli", "ke"])).toEqual(["keys"]);
    expect(await offered([program, "cli", "org", ""])).toEqual([
      ...["create", "list", "update", "--help"],
    ]);
    for (const { noun, verb, options } of COMMANDS) {
      const words = verb === undefined ? [noun] : [noun, verb];
      const names = Object.keys(options).map((name) => `--${name}`);
      const all = await offered([program, "cli", ...words, "--"]);
      expect(all).toEqual([...names, "--json", "--help"]);
    }
    expect(await offered([program, "cli", "keys", "create", "--name", "x", "--kind", ""])).toEqual([
      ...["secret", "management", "operator"],
    ]);
    expect(await offered([program, "cli", "keys", "create", "--name", ""])).toEqual([]);
  });

  test("offers files only to a command that takes one", async () => {
    writeFileSync(join(folder, "a backup.gateway"), "");
    expect(await offered(["model-gateway", "cli", "restore", "a"])).toEqual(["a backup.gateway"]);
    expect(await offered(["model-gateway", "cli", "migrate", "a"])).toEqual([]);
  });

  test("completes an alias without the word cli", async () => {
    expect(await offered(["gw", "mig"], "--command", "gw")).toEqual(["migrate"]);
  });
});

describe.skipIf(Bun.which("fish") === null)("completion of fish", () => {
  test("offers verbs with their summaries, and options", async () => {
    const script = await scriptOf("fish");
    const offered = (line: string) =>
      output(["fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, script, line]);
    expect(offered("model-gateway cli keys cr")).toEqual([
      "create\tCreates a key and shows it once.",
    ]);
    expect(offered("model-gateway cli keys create --na")).toEqual([
      "--name\tname, unique in its organization",
    ]);
  });
});

test.skipIf(Bun.which("zsh") === null)(
  "the completion of zsh is valid, and is registered",
  async () => {
    const script = await scriptOf("zsh");
    expect(output(["zsh", "-f", "-n", script])).toEqual([]);
    const run = `compdef() { print -- "$@" }; source ${script}`;
    expect(output(["zsh", "-f", "-c", run])).toEqual(["_model_gateway_completion model-gateway"]);
  },
);

test.each([
  [["completion"], "bash, zsh, fish"],
  [["completion", "tcsh"], "bash, zsh, fish"],
  [["completion", "bash", "--command", "a;b"], "--command"],
])("%j is refused", async (argv, named) => {
  const { exitCode, stderr } = await runCliHere({}, ...argv);
  expect(exitCode).toBe(2);
  expect(stderr).toContain(named);
});
