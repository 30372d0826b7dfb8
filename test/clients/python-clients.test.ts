import { afterAll, beforeAll, describe, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  type ClientRun,
  type ClientsGateway,
  startClientsGateway,
} from "../support/clients-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { type MessageReplays, startMessageReplays } from "../support/message-replays.ts";
import { findPython, pythonPackages } from "../support/python-packages.ts";

/*
 * Clients in Python. Each script registers its checks by client and by what is tried, and prints what became
 * of each; here each is a test.
 */

const FOLDER = join(import.meta.dir, "python");
const SCRIPTS = [
  "openai_checks.py",
  "framework_checks.py",
  "anthropic_checks.py",
  "anthropic_replays.py",
] as const;
/** Each tries a provider that recovers. */
const RECOVERING = ["openai", "langchain", "llama", "litellm", "anthropic", "langchain-anthropic"];
/** Their imports alone take some seconds of a processor the first time. */
const SCRIPT_MS = 150_000;
const PREPARED_WITHIN_MS = 400_000;

const python = await findPython();

let replays: MessageReplays | undefined;
let gateway: ClientsGateway | undefined;
const runs = new Map<string, ClientRun>();
beforeAll(async () => {
  if (python === undefined) return;
  const packages = pythonPackages(python, join(FOLDER, "requirements.txt"));
  // Until it is awaited.
  packages.catch(() => {});
  replays = startMessageReplays();
  const started = await startClientsGateway(RECOVERING, replays);
  gateway = started;
  const environment = {
    PYTHONPATH: await packages,
    PYTHONUNBUFFERED: "1",
    GATEWAY_REPLAYS: JSON.stringify(replays.replays),
    GATEWAY_COUNTED_TOKENS: String(replays.countedTokens),
    // They would ask other hosts.
    LITELLM_LOCAL_MODEL_COST_MAP: "True",
    LANGSMITH_TRACING: "false",
  };
  await Promise.all(
    SCRIPTS.map(async (name) => {
      const command = [python, "-s", join(FOLDER, name)];
      runs.set(name, await started.runChecks(command, SCRIPT_MS, environment));
    }),
  );
}, PREPARED_WITHIN_MS);
afterAll(async () => {
  await gateway?.stop();
  await replays?.stop();
});

/** The checks that a script registers. */
function checksOf(name: string): (readonly [client: string, tried: string])[] {
  const source = readFileSync(join(FOLDER, name), "utf8");
  return [...source.matchAll(/^@check\("([^"]+)", "([^"]+)"\)$/gm)].map(
    ([, client, tried]) => [client!, tried!] as const,
  );
}

describe.skipIf(python === undefined).each([...SCRIPTS])("%s", (name) => {
  test.each(checksOf(name))("%s: %s", (client, tried) => {
    runs.get(name)!.expectPassed(client, tried);
  });
});

test.skipIf(python === undefined)("none of their calls leaves a hold, and the books balance", () =>
  expectBooksClosed(gateway!),
);
