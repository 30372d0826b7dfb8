import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { Grounds } from "../crash/gateway-process.ts";
import { programEnvironment } from "../support/programs.ts";
import { findPython, pythonPackages } from "../support/python-packages.ts";
import { BlockRunner } from "./block-runner.ts";
import { needsPython, readPage } from "./page.ts";
import {
  needsOwnGateway,
  PageSession,
  type PythonBlocks,
  type SharedGateway,
} from "./page-session.ts";
import { isBeforeRevision, PAGES, readText } from "./pages.ts";

/*
 * Runs the examples of the README and of docs/ as the pages print them. Pages that start no gateway share
 * one, in an organization each.
 */

const PAGE_MS = 120_000;
const PACKAGES_MS = 400_000;
const REQUIREMENTS = join(import.meta.dir, "..", "clients", "python", "requirements.txt");
const STARTING_CREDIT_USD = 1_000;

const grounds = new Grounds("docs");
const revised: string[] = [];
for (const path of PAGES) if (!(await isBeforeRevision(path))) revised.push(path);
const pages = await Promise.all(
  revised.map(async (path) => [path, readPage(await readText(path))] as const),
);
const runsPython = pages.some(([, { steps }]) =>
  steps.some((step) => step.kind === "example" && needsPython(step)),
);

let python: PythonBlocks | undefined;
let pythonRunner: BlockRunner | undefined;
let shared: Promise<SharedGateway> | undefined;

beforeAll(async () => {
  const interpreter = runsPython ? await findPython() : undefined;
  if (interpreter === undefined) return;
  const packages = await pythonPackages(interpreter, REQUIREMENTS);
  python = {
    packages,
    run(request) {
      if (pythonRunner?.hasEnded !== false) {
        const env = { ...programEnvironment(), PYTHONPATH: packages, PYTHONUNBUFFERED: "1" };
        const command = [interpreter, "-s", join(import.meta.dir, "runners", "python_blocks.py")];
        pythonRunner = new BlockRunner(command, { cwd: grounds.folder, env });
      }
      return pythonRunner.run(JSON.stringify(request));
    },
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
  test.skipIf(!page.steps.some((step) => step.kind === "example" && step.notRun === undefined))(
    "its examples work as printed",
    async () => {
      let session: PageSession;
      if (needsOwnGateway(page)) {
        session = await PageSession.onOwnGateway(page, python);
      } else {
        shared ??= startSharedGateway();
        session = await PageSession.onSharedGateway(path, await shared, python);
      }
      try {
        expect((await session.faults(page)).map((fault) => `${path}, ${fault}`)).toEqual([]);
        if (path === "README.md") await expectQuietRestart(session);
      } finally {
        await session.stop();
      }
    },
    PAGE_MS,
  );
});

/** The variables that a page sets for its examples are no settings of the gateway. */
async function expectQuietRestart(session: PageSession): Promise<void> {
  expect(await session.runShell('echo "${SECRET_KEY:0:11} ${MANAGEMENT_KEY:0:13}"')).toBe(
    "gateway_sk_ gateway_mgmt_\n",
  );
  await session.runShell("bun run start");
  expect(session.gatewayLog()).not.toMatch(/is ignored|"level":"(?:warn|error)"/);
}
