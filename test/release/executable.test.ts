import { afterAll, expect, test } from "bun:test";
import { copyFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import manifest from "../../package.json" with { type: "json" };
import { exitOf, firstKeys, Grounds } from "../crash/gateway-process.ts";
import { chat } from "../start/client.ts";
import { FEATURE_SETTINGS, useEveryPart } from "./features.ts";

const TIMEOUT_MS = 300_000;
const ROOT = join(import.meta.dir, "..", "..");
const grounds = new Grounds("executable");
afterAll(() => grounds.clear());

/** Builds the executable for this machine into the test's folder. */
function buildExecutable(): string {
  const command = [process.execPath, join(ROOT, "src/main/release/executable.ts")];
  const { stdout, stderr, success } = Bun.spawnSync(command, { cwd: ROOT });
  if (!success) throw new Error(stderr.toString());
  const path = join(grounds.folder, "model-gateway");
  copyFileSync(stdout.toString().trim(), path);
  return path;
}

test(
  "the executable starts in an empty folder, serves every part, and starts again without unpacking",
  async () => {
    const command = [buildExecutable()];
    const dataDir = grounds.newDataDir();
    const programs = () => readdirSync(join(dataDir, "program"));
    for (const start of ["first", "second"]) {
      const gateway = grounds.launch({ dataDir, command, environment: FEATURE_SETTINGS });
      const baseUrl = await gateway.listening;
      const { secret_key: key } = firstKeys(dataDir);
      if (start === "first") await useEveryPart(baseUrl, key);
      else expect((await chat(baseUrl, key)).status).toBe(200);
      expect(programs()).toHaveLength(1);
      expect(programs()[0]).toStartWith(`${manifest.version}-`);
      gateway.signal("SIGTERM");
      expect(await exitOf(gateway)).toBe(0);
    }
    // Others must not read the data folder. A Postgres that runs as another user passes through it.
    expect(statSync(dataDir).mode & 0o066).toBe(0);

    const cli = Bun.spawnSync([...command, "cli", "keys", "generate"], {
      env: { DATA_DIR: dataDir },
      cwd: grounds.folder,
    });
    expect(cli.stdout.toString()).toMatch(/gateway_sk_\w{38}/);
    expect(programs()).toHaveLength(1);
  },
  TIMEOUT_MS,
);
