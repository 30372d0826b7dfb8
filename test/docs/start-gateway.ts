/*
 * `bun run start` of a page: stops the page's gateway if one runs, as Ctrl-C does, starts it again with the
 * settings of the page's shell, and ends when it listens.
 */

import { existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../support/until.ts";
import { readPid, stopProcessGroup } from "./process-group.ts";

const READY_MS = 40_000;

const { PAGE_STATE = "", PAGE_PORT = "", PAGE_OPERATOR_KEY, PAGE_BUN = "" } = process.env;
const pidFile = join(PAGE_STATE, "gateway.pid");
const logFile = join(PAGE_STATE, "gateway.log");

const environment: Record<string, string | undefined> = {
  PORT: PAGE_PORT,
  GATEWAY_OPERATOR_KEY: PAGE_OPERATOR_KEY,
  ...process.env,
  // Without the commands of this folder.
  PATH: process.env.PATH?.slice(process.env.PATH.indexOf(":") + 1),
};
for (const name of Object.keys(environment)) {
  if (name.startsWith("PAGE_")) delete environment[name];
}

await stopProcessGroup(readPid(pidFile));
const log = openSync(logFile, "w");
const gateway = Bun.spawn([PAGE_BUN, "run", "start", ...process.argv.slice(2)], {
  env: environment,
  stdio: ["ignore", log, log],
  detached: true,
});
gateway.unref();
writeFileSync(pidFile, String(gateway.pid));
const url = `http://127.0.0.1:${environment.PORT}/readyz`;
try {
  await until(
    "the page's gateway listens",
    async () => {
      if (gateway.exitCode !== null) throw new Error("the page's gateway ended");
      return (await fetch(url).catch(() => undefined))?.ok;
    },
    READY_MS,
  );
} catch (error) {
  console.error(readFileSync(logFile, "utf8"));
  throw error;
}
const keys = join(environment.DATA_DIR ?? ".data", "first-keys.json");
if (existsSync(keys)) writeFileSync(join(PAGE_STATE, "keys.json"), readFileSync(keys));
process.exit(0);
