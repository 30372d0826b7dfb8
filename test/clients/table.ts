import { readFileSync } from "node:fs";
import { join } from "node:path";
import { devDependencies } from "../../package.json";

const ROOT = join(import.meta.dir, "../..");
const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");

interface Row {
  readonly client: string;
  readonly version: string;
  readonly tried: string;
  readonly test: string;
}

/** Published packages of npm, and what their tests in this folder try. */
const PACKAGES: readonly (readonly [keyof typeof devDependencies, tried: string, test: string])[] =
  [
    [
      "openai",
      "models, chat and responses whole and streamed, tools, structured output, embeddings, images, speech, transcriptions, files, fine-tuning, errors, retries, aborts",
      "openai-*.test.ts",
    ],
    [
      "@anthropic-ai/sdk",
      "messages whole and streamed, thinking, tools, count_tokens, each class of error; on the sandbox and on recordings of both wires, billed as by chat",
      "anthropic-sdk.test.ts",
    ],
    ["ai", "text, streams, tools, structured output, errors", "ai-sdk-chat.test.ts"],
    [
      "@ai-sdk/openai",
      "responses: tools over turns by item references, streams, reasoning",
      "openai-responses.test.ts",
    ],
    ["@openrouter/sdk", "models: list validated, count", "openrouter-models.test.ts"],
    ["@openrouter/sdk", "chat: whole, stream, from the cache", "openrouter-chat.test.ts"],
  ];

function nodeRows(): Row[] {
  return PACKAGES.map(([client, tried, test]) => {
    return { client, version: devDependencies[client], tried, test };
  });
}

/** The names that the checks' clients have in the requirements, where they are others. */
const DISTRIBUTIONS: Readonly<Record<string, string>> = {
  "llama-index": "llama-index-llms-openai-like",
  "pydantic-ai": "pydantic-ai-slim",
};

const PYTHON_CHECKS = [
  "openai_checks",
  "anthropic_checks",
  "anthropic_replays",
  "framework_checks",
] as const;

function pythonRows(): Row[] {
  const requirements = read("test/clients/python/requirements.txt");
  const checks = PYTHON_CHECKS.flatMap((name) => {
    const source = read(`test/clients/python/${name}.py`);
    return [...source.matchAll(/^@check\("([^"]+)", "([^"]+)"\)$/gm)];
  });
  const tried = Map.groupBy(checks, ([, client]) => client!);
  return [...tried].map(([client, ofClient]) => {
    const distribution = DISTRIBUTIONS[client] ?? client;
    const pinned = new RegExp(`^${distribution}(?:\\[[^\\]]*\\])?==(\\S+)`, "m");
    return {
      client: `${distribution} (Python)`,
      version: pinned.exec(requirements)![1]!,
      tried: ofClient.map(([, , one]) => one).join("; "),
      test: "python-clients.test.ts",
    };
  });
}

function thoroughRows(): Row[] {
  const agents = read("test/clients/coding-agents.test.ts");
  const version = (name: string) => new RegExp(`^const ${name} = "(.+)";`, "m").exec(agents)![1]!;
  const session = "a session with a call of its shell";
  const test = "coding-agents.test.ts";
  const listed = (path: string, form: RegExp) =>
    [...read(path).matchAll(form)].map(([, one]) => one).join("; ");
  return [
    {
      client: "openai-go",
      version: /openai-go\/v\d+ v(\S+)/.exec(read("test/clients/go/go.mod"))![1]!,
      tried: listed("test/clients/go/main.go", /^\t\{"([^"]+)", \w+\},$/gm),
      test: "compiled-clients.test.ts",
    },
    {
      client: "openai-java",
      version: /openai-java<\/artifactId>\s*<version>([^<]+)/.exec(
        read("test/clients/java/pom.xml"),
      )![1]!,
      tried: listed(
        "test/clients/java/src/main/java/Checks.java",
        /^ {4}check\("([^"]+)", Checks::\w+\);$/gm,
      ),
      test: "compiled-clients.test.ts",
    },
    { client: "Claude Code", version: version("CLAUDE_CODE"), tried: session, test },
    { client: "Continue's CLI", version: version("CONTINUE"), tried: session, test },
    { client: "Codex", version: version("CODEX"), tried: session, test },
  ];
}

/** Which clients the tests try against the gateway, in Markdown. A client that fails fails the run. */
export function clientsTable(): string {
  const line = (run: string) => (row: Row) =>
    `| ${row.client} | ${row.version} | ${row.tried} | passes in \`${run}\` (\`${row.test}\`) |`;
  return [
    "| client | version | tried | result |",
    "|---|---|---|---|",
    ...[...nodeRows(), ...pythonRows()].map(line("test:all")),
    ...thoroughRows().map(line("test:thorough")),
    "| Cursor, Open WebUI, LibreChat | | nothing | not run: their lines follow their own documentation |",
  ].join("\n");
}
