import { afterAll, beforeAll, describe, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type ClientRun,
  type ClientsGateway,
  startClientsGateway,
} from "../support/clients-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { IS_THOROUGH } from "../support/thorough.ts";

/* OpenAI's clients in Go and Java, whose compilation takes minutes of a processor: with GATEWAY_TEST_THOROUGH=1 alone. */

const BUILD_MS = 900_000;
const CHECKS_MS = 120_000;
const CLASS_PATH = "class-path.txt";

interface Language {
  readonly name: "go" | "java";
  readonly client: string;
  /** What has to be on the PATH. */
  readonly tools: readonly string[];
  readonly build: readonly string[];
  /** What runs the checks, in the folder that was built in. */
  program(folder: string): string[];
  /** Where the checks are listed, and how. */
  readonly source: string;
  readonly listed: RegExp;
}

const LANGUAGES: readonly Language[] = [
  {
    name: "go",
    client: "openai-go",
    tools: ["go"],
    build: ["go", "build", "-mod=readonly", "-o", "checks", "."],
    program: (folder) => [join(folder, "checks")],
    source: "main.go",
    listed: /^\t\{"([^"]+)", \w+\},$/gm,
  },
  {
    name: "java",
    client: "openai-java",
    tools: ["mvn", "java"],
    build: [
      ...["mvn", "-q", "-B", "compile", "dependency:build-classpath"],
      `-Dmdep.outputFile=${CLASS_PATH}`,
    ],
    program: (folder) => {
      const libraries = readFileSync(join(folder, CLASS_PATH), "utf8").trim();
      return ["java", "-cp", `${join(folder, "target/classes")}:${libraries}`, "Checks"];
    },
    source: "src/main/java/Checks.java",
    listed: /^ {4}check\("([^"]+)", Checks::\w+\);$/gm,
  },
];

function isMissing({ client, tools }: Language): boolean {
  if (!IS_THOROUGH) return true;
  const missing = tools.find((tool) => Bun.which(tool) === null);
  if (missing !== undefined) {
    console.warn(`NO ${missing} on the PATH: the tests of ${client} are SKIPPED.`);
  }
  return missing !== undefined;
}

for (const language of LANGUAGES) {
  const { name, client, source, listed } = language;
  const sources = join(import.meta.dir, name);
  const checks = [...readFileSync(join(sources, source), "utf8").matchAll(listed)];

  describe.skipIf(isMissing(language))(client, () => {
    let folder = "";
    let gateway: ClientsGateway | undefined;
    let run: ClientRun;
    beforeAll(
      async () => {
        folder = mkdtempSync(join(tmpdir(), `gateway-${name}-`));
        cpSync(sources, folder, { recursive: true });
        await build(language, folder);
        gateway = await startClientsGateway([name]);
        run = await gateway.runChecks(language.program(folder), CHECKS_MS);
      },
      BUILD_MS + 2 * CHECKS_MS,
    );
    afterAll(async () => {
      await gateway?.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    test.each(checks.map(([, tried]) => tried!))("%s", (tried) => run.expectPassed(client, tried));

    test("none of its calls leaves a hold, and the books balance", () =>
      expectBooksClosed(gateway!));
  });
}

async function build({ build: command }: Language, folder: string): Promise<void> {
  const child = Bun.spawn([...command], {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: BUILD_MS,
  });
  const [output, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) === 0) return;
  throw new Error(`${command.slice(0, 2).join(" ")} failed: ${`${output}${errors}`.slice(-2_000)}`);
}
