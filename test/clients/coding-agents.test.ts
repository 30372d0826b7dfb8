import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ClientsGateway, startClientsGateway } from "../support/clients-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { IS_THOROUGH } from "../support/thorough.ts";

/*
 * Coding agents as their users start them, without a terminal: a turn in which the model calls the agent's
 * shell, and one in which it answers. Their programs are large: with GATEWAY_TEST_THOROUGH=1 alone.
 */

const CLAUDE_CODE = "2.1.197";
const CONTINUE = "1.5.47";
const CODEX = "0.169.0";
const INSTALL_MS = 300_000;
const AGENT_MS = 120_000;
const MODEL = "test/agent";
const ANSWER = "The shell printed it.";

let folder = "";
let gateway: ClientsGateway | undefined;
beforeAll(async () => {
  if (!IS_THOROUGH) return;
  folder = mkdtempSync(join(tmpdir(), "gateway-agents-"));
  await install();
  gateway = await startClientsGateway([]);
}, INSTALL_MS);
afterAll(async () => {
  await gateway?.stop();
  if (folder !== "") rmSync(folder, { recursive: true, force: true });
});

async function install(): Promise<void> {
  const dependencies = {
    "@anthropic-ai/claude-code": CLAUDE_CODE,
    "@continuedev/cli": CONTINUE,
    "@openai/codex": CODEX,
  };
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, dependencies }));
  const child = Bun.spawn([process.execPath, "install", "--silent"], {
    cwd: folder,
    stdio: ["ignore", "ignore", "pipe"],
    timeout: INSTALL_MS,
  });
  const errors = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`bun install failed: ${errors.slice(-2_000)}`);
}

/** What the agent prints, whose shell the model asks for the command first. */
async function spokenBy(
  command: readonly string[],
  environment: Record<string, string>,
  shell: { readonly name: string; readonly word: string; readonly argument?: string },
): Promise<string> {
  const { upstream } = gateway!;
  const { argument = "command" } = shell;
  const told = argument === "command" && { description: "Prints a word" };
  const call = JSON.stringify({ [argument]: `echo ${shell.word}`, ...told });
  upstream.enqueue(
    "agent",
    { do: "complete", toolCalls: [{ name: shell.name, arguments: call }] },
    { do: "complete", content: ANSWER },
  );
  const home = join(folder, shell.word);
  mkdirSync(home);
  const child = Bun.spawn([...command], {
    cwd: home,
    env: { PATH: process.env.PATH ?? "", HOME: home, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: AGENT_MS,
  });
  const [output, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0) throw new Error(`${output}\n${errors}`);
  return output;
}

/** The model was given what the shell printed. */
function expectRoundTrip(word: string): void {
  const [, second] = gateway!.upstream.servedOf("agent").slice(-2);
  const { messages } = second!.requestBody as unknown as {
    messages: { role: string; content: unknown }[];
  };
  const results = messages.filter(({ role }) => role === "tool");
  expect(JSON.stringify(results)).toContain(word);
}

describe.skipIf(!IS_THOROUGH)("a session with a call of the shell", () => {
  test(
    `Claude Code ${CLAUDE_CODE}`,
    async () => {
      const platform = `claude-code-${process.platform}-${process.arch}`;
      const program = join(folder, "node_modules/@anthropic-ai", platform, "claude");
      const options = ["--allowedTools", "Bash(echo:*)", "--output-format", "json"];
      const output = await spokenBy(
        [program, "-p", "Print a word.", ...options],
        {
          ANTHROPIC_BASE_URL: gateway!.baseUrl,
          ANTHROPIC_AUTH_TOKEN: gateway!.secretKey,
          ANTHROPIC_MODEL: MODEL,
          CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        },
        { name: "Bash", word: "quicksilver" },
      );
      expect(JSON.parse(output)).toMatchObject({ is_error: false, num_turns: 2, result: ANSWER });
      expectRoundTrip("quicksilver");
    },
    AGENT_MS,
  );

  test(
    `Continue's CLI ${CONTINUE}`,
    async () => {
      const config = join(folder, "config.yaml");
      writeFileSync(config, continueConfig());
      const program = join(folder, "node_modules/.bin/cn");
      const output = await spokenBy(
        [program, "-p", "--config", config, "--allow", "Bash", "Print a word."],
        { CONTINUE_TELEMETRY_ENABLED: "0" },
        { name: "Bash", word: "cinnabar" },
      );
      expect(output).toContain(ANSWER);
      expectRoundTrip("cinnabar");
    },
    AGENT_MS,
  );

  test(
    `Codex ${CODEX}`,
    async () => {
      const settings = {
        model: MODEL,
        model_provider: "gateway",
        "model_providers.gateway.name": "gateway",
        "model_providers.gateway.base_url": `${gateway!.baseUrl}/v1`,
        "model_providers.gateway.env_key": "SECRET_KEY",
        "model_providers.gateway.wire_api": "responses",
      };
      const configured = Object.entries(settings).flatMap(([name, value]) => [
        "-c",
        `${name}=${JSON.stringify(value)}`,
      ]);
      const program = join(folder, "node_modules/.bin/codex");
      const options = ["--skip-git-repo-check", "--json", "--sandbox", "danger-full-access"];
      const output = await spokenBy(
        [program, "exec", ...options, ...configured, "Print a word."],
        { SECRET_KEY: gateway!.secretKey },
        { name: "exec_command", word: "orpiment", argument: "cmd" },
      );
      const items = output.split("\n").filter((line) => line.includes('"agent_message"'));
      expect(items.map((line) => JSON.parse(line).item.text)).toEqual([ANSWER]);
      expectRoundTrip("orpiment");
    },
    AGENT_MS,
  );

  test("none of their calls leaves a hold, and the books balance", () =>
    expectBooksClosed(gateway!));
});

function continueConfig(): string {
  return `name: Gateway
version: 1.0.0
schema: v1
models:
  - name: Agent
    provider: openai
    model: ${MODEL}
    apiBase: ${gateway!.baseUrl}/v1
    apiKey: ${gateway!.secretKey}
    roles: [chat, edit, apply]
`;
}
