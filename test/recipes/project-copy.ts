import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import type { Edit, TextChange } from "./recipe.ts";

const PROJECT = join(import.meta.dir, "..", "..");

/** Checks the code without its tests, because a recipe does not count the tests that its addition changes. */
const PRODUCTION = { extends: "./tsconfig.json", include: ["src", "actors", "db"] };

/** The result of a program. */
interface Run {
  readonly exitCode: number;
  readonly output: string;
}

/** A copy of the project in a folder, with the packages of the project. */
export class ProjectCopy {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Copies the files that git has, or would add, into a folder that does not exist. */
  static async create(folder: string): Promise<ProjectCopy> {
    const listed = await Bun.$`git ls-files -z --cached --others --exclude-standard`
      .cwd(PROJECT)
      .text();
    for (const path of listed.split("\0")) {
      const source = join(PROJECT, path);
      if (path === "" || !existsSync(source)) continue;
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      copyFileSync(source, join(folder, path));
    }
    symlinkSync(join(PROJECT, "node_modules"), join(folder, "node_modules"));
    writeFileSync(join(folder, "tsconfig.production.json"), JSON.stringify(PRODUCTION));
    return new ProjectCopy(folder);
  }

  read(path: string): string {
    return readFileSync(join(this.folder, path), "utf8");
  }

  /** Makes an edit. Throws if its file is not as the edit expects it. */
  edit({ path, change }: Edit): void {
    const file = join(this.folder, path);
    mkdirSync(dirname(file), { recursive: true });
    if (typeof change === "string") writeFileSync(file, change, { flag: "wx" });
    else writeFileSync(file, changeText(this.read(path), change));
  }

  /** Returns TypeScript's errors in the production code, one a line. */
  async typeErrors(): Promise<string[]> {
    const { output } = await this.run("run", "check:types", "-p", "tsconfig.production.json");
    return output.split("\n").filter((line) => /: error TS\d+: /.test(line));
  }

  /** Runs Bun with arguments in the copy. */
  async run(...args: readonly string[]): Promise<Run> {
    const child = Bun.spawn([process.execPath, ...args], {
      cwd: this.folder,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, NO_COLOR: "1" },
    });
    const [out, err, exitCode] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    return { exitCode, output: `${out}${err}` };
  }
}

/** Returns the text after the changes. Throws if the text does not have the place of a change exactly once. */
function changeText(text: string, changes: readonly TextChange[]): string {
  return changes.reduce((current, change) => {
    const place =
      "replace" in change ? change.replace : "before" in change ? change.before : change.after;
    const parts = current.split(place);
    if (parts.length !== 2) throw new Error(`found ${parts.length - 1} times: ${place}`);
    if ("replace" in change) return parts.join(change.by);
    return parts.join("before" in change ? change.insert + place : place + change.insert);
  }, text);
}
