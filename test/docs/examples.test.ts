import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { Grounds } from "../crash/gateway-process.ts";
import { openSemaphore } from "../support/open-semaphore.ts";
import { programEnvironment } from "../support/programs.ts";
import { findPython, pythonPackages } from "../support/python-packages.ts";
import { BlockRunner } from "./block-runner.ts";
import { needsPython, type Page, readPage } from "./page.ts";
import {
  needsOwnGateway,
  PageSession,
  type PythonBlocks,
  type SharedGateway,
} from "./page-session.ts";
import { PAGES, readText } from "./pages.ts";

/*
 * Runs the examples of the README and of docs/ as the pages print them. Pages that start no gateway share
 * one, in an organization each.
 */

/** Includes the time in which a page waits for others. */
const PAGE_MS = 400_000;
/** Pages wait for processes that start, so a few of them share two cores well. */
const PAGES_IN_PARALLEL = 3;
const PACKAGES_MS = 400_000;
const REQUIREMENTS = join(import.meta.dir, "..", "clients", "python", "requirements.txt");
const STARTING_CREDIT_USD = 1_000;

const grounds = new Grounds("docs");
const pages = await Promise.all(
  PAGES.map(async (path) => [path, readPage(await readText(path))] as const),
);
const runsPython = pages.some(([, { steps }]) =>
  steps.some((step) => step.kind === "example" && needsPython(step)),
);

const sessions = openSemaphore(PAGES_IN_PARALLEL);
/** One process runs the Python blocks of all pages. */
const pythonTurns = openSemaphore(1);
let python: PythonBlocks | undefined;
let pythonRunner: BlockRunner | undefined;
let shared: Promise<SharedGateway> | undefined;

beforeAll(async () => {
  const interpreter = runsPython ? await findPython() : undefined;
  if (interpreter === undefined) return;
  const packages = await pythonPackages(interpreter, REQUIREMENTS);
  python = {
    packages,
    run: (request) =>
      pythonTurns.run("docs", async () => {
        if (pythonRunner?.hasEnded !== false) {
          const env = { ...programEnvironment(), PYTHONPATH: packages, PYTHONUNBUFFERED: "1" };
          const command = [interpreter, "-s", join(import.meta.dir, "runners", "python_blocks.py")];
          pythonRunner = new BlockRunner(command, { cwd: grounds.folder, env });
        }
        return pythonRunner.run(JSON.stringify(request));
      }),
  };
}, PACKAGES_MS);

afterAll(async () => {
  pythonRunner?.stop();
  await grounds.clear();
});

async function startSharedGateway(): Promise<SharedGateway> {
  const operatorKey = generateApiKey("operator").key;
  const gateway = grounds.launch({
    dataDir: await grounds.newDataDirWithDatabase(),
    environment: { GATEWAY_OPERATOR_KEY: operatorKey },
  });
  const baseUrl = await gateway.listening;
  return {
    baseUrl,
    operatorKey,
    async newOrganization(name) {
      const response = await fetch(`${baseUrl}/v1/admin/organizations`, {
        method: "POST",
        headers: { authorization: `Bearer ${operatorKey}`, "content-type": "application/json" },
        body: JSON.stringify({ name, starting_credit_usd: STARTING_CREDIT_USD }),
      });
      expect(response.status).toBe(201);
      const { secret_key, management_key } = (await response.json()) as Record<string, string>;
      return { secretKey: secret_key!, managementKey: management_key! };
    },
  };
}

describe.each(pages)("%s", (path, page) => {
  const runs = page.steps.some((step) => step.kind === "example" && step.notRun === undefined);
  test.concurrent.skipIf(!runs)(
    "its examples work as printed",
    () => sessions.run("docs", () => expectExamplesWork(path, page)),
    PAGE_MS,
  );
});

async function expectExamplesWork(path: string, page: Page): Promise<void> {
  const session = await openSession(path, page);
  try {
    expect((await session.faults(page)).map((fault) => `${path}, ${fault}`)).toEqual([]);
    if (path === "README.md") await expectQuietRestart(session);
  } finally {
    await session.stop();
  }
}

async function openSession(path: string, page: Page): Promise<PageSession> {
  if (needsOwnGateway(page)) return PageSession.onOwnGateway(page, python);
  shared ??= startSharedGateway();
  return PageSession.onSharedGateway(path, await shared, python);
}

/** The variables that a page sets for its examples are no settings of the gateway. */
async function expectQuietRestart(session: PageSession): Promise<void> {
  const exported = await session.runShell("echo $SECRET_KEY $MANAGEMENT_KEY");
  expect(exported).toMatch(/^gateway_sk_\w+ gateway_mgmt_\w+\n$/);
  await session.runShell("bun run start");
  expect(session.gatewayLog()).not.toMatch(/is ignored|"level":"warn"/);
}
