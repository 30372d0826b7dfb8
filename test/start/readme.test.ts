import { afterAll, expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { exitOf, firstKeys, Grounds } from "../crash/gateway-process.ts";

const TIMEOUT_MS = 60_000;
const ROOT = join(import.meta.dir, "..", "..");
const ADDRESS = "http://127.0.0.1:3000";

const grounds = new Grounds("readme");
afterAll(() => grounds.clear());

interface Example {
  readonly language: "sh" | "ts";
  readonly text: string;
}

/** The README's examples that call a running gateway, in the order of the page. */
async function examples(): Promise<Example[]> {
  const page = await Bun.file(join(ROOT, "README.md")).text();
  return [...page.matchAll(/```(sh|ts)\n([\s\S]*?)```/g)]
    .map(([, language, text]) => ({ language: language as Example["language"], text: text! }))
    .filter(({ text }) => text.includes(ADDRESS));
}

test(
  "each request of the README works as printed on a default install, and a restart warns of no variable that it sets",
  async () => {
    const dataDir = grounds.newDataDir();
    const gateway = grounds.launch({ dataDir });
    const baseUrl = await gateway.listening;
    const keys = firstKeys(dataDir);
    const printed = await examples();
    expect(printed.map(({ language }) => language)).toEqual(["sh", "ts", "sh"]);
    const exported: Record<string, string> = {};
    let created = "";
    for (const { language, text } of printed) {
      for (const [, name, kind] of text.matchAll(/^export (\w+)=(gateway_(?:sk|mgmt)_)…/gm)) {
        exported[name!] = kind === "gateway_sk_" ? keys.secret_key : keys.management_key;
      }
      const here = text.replaceAll(ADDRESS, baseUrl).replaceAll(/^export .*$/gm, "");
      const output =
        language === "sh" ? await runShell(here, exported) : await runScript(here, exported);
      expect(output).not.toBe("");
      if (here.includes("/v1/keys")) created = JSON.parse(output).key;
    }
    expect(exported).toEqual({ SECRET_KEY: keys.secret_key, MANAGEMENT_KEY: keys.management_key });
    const first = printed[0]!.text.replaceAll(ADDRESS, baseUrl).replaceAll(/^export .*$/gm, "");
    const chat = first.slice(0, first.indexOf("curl", first.indexOf("curl") + 1));
    expect(await runShell(chat, { SECRET_KEY: created })).toContain("chat.completion");
    gateway.signal("SIGTERM");
    expect(await exitOf(gateway)).toBe(0);
    const again = grounds.launch({ dataDir, environment: exported });
    await again.listening;
    expect(again.stdout() + again.stderr()).not.toContain("is ignored");
  },
  TIMEOUT_MS,
);

/** Runs the commands until one fails; a status of 400 or above is a failure. Returns their output. */
async function runShell(commands: string, environment: Record<string, string>): Promise<string> {
  const script = `set -e\ncurl() { command curl --silent --show-error --fail-with-body "$@"; }\n${commands}`;
  return outputOf(["bash", "-c", script], grounds.folder, environment);
}

/** Runs a program inside the checkout, so that it finds the packages that it imports. */
async function runScript(text: string, environment: Record<string, string>): Promise<string> {
  const path = join(import.meta.dir, `readme-example-${process.pid}.ts`);
  writeFileSync(path, text);
  try {
    return await outputOf([process.execPath, path], ROOT, environment);
  } finally {
    rmSync(path);
  }
}

async function outputOf(
  command: string[],
  cwd: string,
  environment: Record<string, string>,
): Promise<string> {
  const child = Bun.spawn(command, {
    cwd,
    env: { PATH: process.env.PATH, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [output, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  expect({ exit: await child.exited, output, errors }).toMatchObject({ exit: 0, errors: "" });
  return output;
}
