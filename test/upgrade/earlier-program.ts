import { existsSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PROJECT = join(import.meta.dir, "..", "..");

/**
 * Unpacks the program of a commit, with the packages that it names, into a folder for temporary files, where it
 * stays. Returns the file to start it from.
 */
export async function unpackProgram(commit: string): Promise<string> {
  const id = (await output("git", "-C", PROJECT, "rev-parse", "--short=12", commit)).trim();
  const folder = join(tmpdir(), `gateway-program-${id}`);
  const whole = join(folder, "unpacked");
  if (!existsSync(whole)) {
    mkdirSync(folder, { recursive: true });
    const archive = `${folder}.tar`;
    await output("git", "-C", PROJECT, "archive", "--output", archive, id);
    await output("tar", "-x", "-f", archive, "-C", folder);
    await output(process.execPath, "install", "--frozen-lockfile", "--cwd", folder);
    mkdirSync(whole);
  }
  return join(folder, "src", "main.ts");
}

async function output(...command: string[]): Promise<string> {
  const child = Bun.spawn(command, { stdio: ["ignore", "pipe", "pipe"] });
  const [text, complaint, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${complaint}`);
  return text;
}
