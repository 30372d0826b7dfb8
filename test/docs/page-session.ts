import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { fillDataDir } from "../support/migrated-data-dir.ts";
import { programEnvironment } from "../support/programs.ts";
import { differences, lastJson, matchesText } from "./answers.ts";
import { type BlockResult, BlockRunner } from "./block-runner.ts";
import { type Answer, type Example, needsPython, type Page, type SavedFile } from "./page.ts";
import { readPid, stopProcessGroup } from "./process-group.ts";

const ROOT = join(import.meta.dir, "..", "..");
const RUNNERS = join(import.meta.dir, "runners");
const COMMANDS = join(import.meta.dir, "commands");
const ADDRESS = "127.0.0.1:3000";
/** What a page's folder has of a checkout, so that its commands and imports work there. */
const CHECKOUT = [
  "actors",
  "bun.lock",
  "bunfig.toml",
  "db",
  "docs",
  "examples",
  "gateway.config.schema.json",
  "node_modules",
  "package.json",
  "src",
  "tsconfig.json",
].filter((name) => existsSync(join(ROOT, name)));

export interface PageKeys {
  readonly secretKey: string;
  readonly managementKey: string;
}

/** The gateway that serves pages which do not start one. */
export interface SharedGateway {
  readonly baseUrl: string;
  readonly operatorKey: string;
  /** Creates an organization for a page. */
  newOrganization(name: string): Promise<PageKeys>;
}

export interface PythonBlocks {
  run(request: { path: string; folder: string; environment: object }): Promise<BlockResult>;
  /** The folder of the packages. */
  readonly packages: string;
}

/** Returns true if the page starts a gateway, or runs commands on the data folder of one. */
export function needsOwnGateway({ steps }: Page): boolean {
  return steps.some((step) => isRunningShell(step) && /\bbun run (?:start|cli)\b/.test(step.code));
}

const isRunningShell = (step: Example | SavedFile): step is Example =>
  step.kind === "example" && step.language === "sh" && step.notRun === undefined;

/** Runs the examples of a page in their order, in a folder and with keys of the page. */
export class PageSession {
  readonly #folder = mkdtempSync(join(tmpdir(), "gateway-page-"));
  readonly #state = join(this.#folder, ".page");
  readonly #failures = join(this.#state, "failures");
  readonly #python: PythonBlocks | undefined;
  readonly #address: string;
  readonly #environment: Record<string, string | undefined>;
  readonly #runners: { sh?: BlockRunner; ts?: BlockRunner } = {};
  #keys: PageKeys | undefined;
  /** The page says how the first keys get into the shell. Otherwise it refers to a page that does. */
  #exportsKeys = false;

  private constructor(
    address: string,
    operatorKey: string,
    keys: PageKeys | undefined,
    python: PythonBlocks | undefined,
  ) {
    // As root the embedded Postgres runs as another user.
    chmodSync(this.#folder, 0o711);
    mkdirSync(this.#state);
    for (const name of CHECKOUT) symlinkSync(join(ROOT, name), join(this.#folder, name));
    this.#address = address;
    this.#python = python;
    this.#keys = keys;
    const base = programEnvironment();
    this.#environment = {
      ...base,
      PATH: `${COMMANDS}:${base.PATH}`,
      PYTHONPATH: python?.packages,
      // Packages that otherwise call other hosts when they are imported.
      LITELLM_LOCAL_MODEL_COST_MAP: "True",
      LANGSMITH_TRACING: "false",
      SECRET_KEY: keys?.secretKey,
      MANAGEMENT_KEY: keys?.managementKey,
      OPERATOR_KEY: operatorKey,
      PAGE_BUN: process.execPath,
      PAGE_CURL: Bun.which("curl") ?? undefined,
      PAGE_START: join(import.meta.dir, "start-gateway.ts"),
      PAGE_STATE: this.#state,
      PAGE_FAILURES: this.#failures,
      PAGE_PORT: address.split(":")[1],
      PAGE_OPERATOR_KEY: operatorKey,
    };
  }

  /** Prepares a session with an organization of the shared gateway. */
  static async onSharedGateway(
    name: string,
    gateway: SharedGateway,
    python: PythonBlocks | undefined,
  ): Promise<PageSession> {
    const keys = await gateway.newOrganization(name);
    return new PageSession(new URL(gateway.baseUrl).host, gateway.operatorKey, keys, python);
  }

  /** Prepares a session whose gateway starts with `bun run start`, by the page or before its first block. */
  static async onOwnGateway(page: Page, python: PythonBlocks | undefined): Promise<PageSession> {
    const operatorKey = generateApiKey("operator").key;
    const address = `127.0.0.1:${await freePort()}`;
    const session = new PageSession(address, operatorKey, undefined, python);
    const shell = page.steps.filter(isRunningShell).map(({ code }) => code);
    session.#exportsKeys = shell.some((code) => code.includes("=gateway_sk_…"));
    if (!shell.some((code) => /\bbun run start\b/.test(code))) {
      await fillDataDir(join(session.#folder, ".data"));
      await session.runShell("bun run start");
    }
    return session;
  }

  /** Returns the faults of the page's examples, each with its line. It stops at a block that fails. */
  async faults({ steps }: Page): Promise<string[]> {
    const faults: string[] = [];
    for (const step of steps) {
      if (step.kind === "file") {
        const path = join(this.#folder, step.name);
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, `${this.#here(step.code)}\n`);
      } else if (step.notRun === undefined) {
        if (needsPython(step) && this.#python === undefined) continue;
        const result = await this.#run(step);
        const problem = this.#problemOf(step, result);
        if (problem !== undefined) {
          const { output, errors } = result;
          return [...faults, `line ${step.line}: ${problem}\n${output}\n${errors}`];
        }
        for (const answer of step.answers) faults.push(...this.#answerFaults(answer, result));
      }
    }
    return faults;
  }

  /** Runs commands in the page's shell, and returns their output. */
  async runShell(commands: string): Promise<string> {
    const result = await this.#runShell(commands, false);
    if (result.status !== 0) throw new Error(`${commands}: ${result.errors}`);
    return result.output;
  }

  /** Ends the page's processes, and removes its folder. */
  async stop(): Promise<void> {
    this.#runners.sh?.stop();
    this.#runners.ts?.stop();
    try {
      await stopProcessGroup(readPid(join(this.#state, "gateway.pid")));
    } finally {
      rmSync(this.#folder, { recursive: true, force: true });
    }
  }

  /** The output of the page's gateway since its last start. */
  gatewayLog(): string {
    return readFileSync(join(this.#state, "gateway.log"), "utf8");
  }

  async #run(step: Example): Promise<BlockResult> {
    await this.#readKeys();
    const code = this.#here(step.code);
    if (step.language === "sh") return this.#runShell(code, step.fails);
    const environment = await this.#exportedVariables();
    if (step.language === "ts") {
      const path = join(this.#folder, `example-${step.line}.ts`);
      writeFileSync(path, code);
      const assign = `process.chdir(${JSON.stringify(this.#folder)}); Object.assign(process.env, ${JSON.stringify(environment)});`;
      writeFileSync(join(this.#state, `environment-${step.line}.ts`), assign);
      this.#runners.ts ??= this.#runner([process.execPath, join(RUNNERS, "typescript.ts")]);
      await this.#runners.ts.run(join(this.#state, `environment-${step.line}.ts`));
      return this.#runners.ts.run(path);
    }
    const path = join(this.#folder, `example_${step.line}.py`);
    writeFileSync(path, code);
    return this.#python!.run({ path, folder: this.#folder, environment });
  }

  #runShell(code: string, fails: boolean): Promise<BlockResult> {
    const path = join(this.#state, "block.sh");
    rmSync(this.#failures, { force: true });
    const start = fails ? "set +e; export PAGE_MAY_FAIL=1" : "set -e; unset PAGE_MAY_FAIL";
    writeFileSync(path, `${start}\n${code}\n`);
    this.#runners.sh ??= this.#runner(["bash", join(RUNNERS, "shell.sh")]);
    return this.#runners.sh.run(path);
  }

  /** Returns the variables that the page's shell exports, which its programs get. */
  async #exportedVariables(): Promise<Record<string, string>> {
    const { output } = await this.#runShell("env -0", false);
    const variables = output
      .split("\0")
      .filter(Boolean)
      .map((line): [string, string] => {
        const end = line.indexOf("=");
        return [line.slice(0, end), line.slice(end + 1)];
      });
    return Object.fromEntries(variables.filter(([name]) => !/^(?:PAGE_|_$)/.test(name)));
  }

  #runner(command: readonly string[]): BlockRunner {
    return new BlockRunner(command, { cwd: this.#folder, env: this.#environment });
  }

  /** Reads the first keys of the page's gateway, once it has started. */
  async #readKeys(): Promise<void> {
    const path = join(this.#state, "keys.json");
    if (this.#keys !== undefined || !existsSync(path)) return;
    const { secret_key, management_key } = JSON.parse(readFileSync(path, "utf8"));
    this.#keys = { secretKey: secret_key, managementKey: management_key };
    if (this.#exportsKeys) return;
    await this.runShell(`export SECRET_KEY=${secret_key} MANAGEMENT_KEY=${management_key}`);
  }

  /** Puts this session's address and keys into a block. */
  #here(code: string): string {
    const { secretKey = "", managementKey = "" } = this.#keys ?? {};
    return code
      .replaceAll(ADDRESS, this.#address)
      .replaceAll("gateway_sk_…", secretKey)
      .replaceAll("gateway_mgmt_…", managementKey)
      .replaceAll("gateway_op_…", this.#environment.OPERATOR_KEY!);
  }

  #problemOf({ fails, language }: Example, { status }: BlockResult): string | undefined {
    const failures = existsSync(this.#failures) ? readFileSync(this.#failures, "utf8").trim() : "";
    const hasFailed = status !== 0 || (language === "sh" && failures !== "");
    if (hasFailed === fails) return undefined;
    if (fails) return "nothing of the block fails, but the page says so";
    return failures || (status === undefined ? "the block ended its process" : "the block failed");
  }

  #answerFaults({ kind, code, line, isPartial }: Answer, { output }: BlockResult): string[] {
    if (kind === "text") {
      const printed = code.replaceAll(ADDRESS, this.#address);
      return matchesText(printed, output)
        ? []
        : [`line ${line}: the page prints\n${printed}\nthe output is\n${output}`];
    }
    const answer = lastJson(output);
    return differences(JSON.parse(code), answer, isPartial).map(
      (difference) => `line ${line}: ${difference}`,
    );
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
