#!/usr/bin/env bun
/* The command of the npm package. */
import { fileURLToPath } from "node:url";
import manifest from "../../../package.json" with { type: "json" };
import { runCommand } from "./run-command.ts";

const fault = findRuntimeFault();
if (fault !== undefined) {
  process.stderr.write(`${fault}\n`);
  process.exit(1);
}
const folder = fileURLToPath(new URL("../../../", import.meta.url));
await runCommand({
  parameters: process.argv.slice(2),
  folder: () => folder,
  environment: process.env,
});

/** Returns the reason why this runtime cannot run the gateway, or undefined if it can. */
function findRuntimeFault(): string | undefined {
  const needed = manifest.engines.bun;
  const remedy = "install it with `npm install -g bun`, then run `bunx model-gateway`";
  const { bun } = process.versions;
  if (bun === undefined) return `model-gateway needs Bun ${needed}, and this is Node.js: ${remedy}`;
  if (Bun.semver.satisfies(bun, needed)) return undefined;
  return `model-gateway needs Bun ${needed}, and this is Bun ${bun}: run \`bun upgrade\``;
}
