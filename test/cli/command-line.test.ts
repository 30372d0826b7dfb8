import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { parseApiKey } from "../../src/lib/api-key-format.ts";
import type { CommandContext } from "../../src/main/cli/command.ts";
import { COMMANDS } from "../../src/main/cli/commands.ts";
import { runCli } from "../../src/main/cli/run-cli.ts";
import { PROVIDER_TYPES } from "../../src/platform/config/provider-types.ts";
import { builtInModels } from "../../src/providers/catalogue/provider-models.ts";
import { printed, runCliHere, runCliProcess } from "./cli-runs.ts";

const context: CommandContext = {
  // A port that nobody listens on: what gets past the command line fails there, with exit code 1.
  environment: { DATABASE_URL: "postgres://nobody@127.0.0.1:1/none" },
  cwd: import.meta.dir,
  nowMs: Date.now,
  log: () => {},
  interrupted: new AbortController().signal,
};
const run = (...argv: string[]) => runCli(argv, context);

test.each([
  [["nope"], "nope"],
  [["--nope"], "--nope"],
  [["keys"], "create, list, revoke, generate"],
  [["keys", "nope"], "nope"],
  [["org", "list", "--nope"], "--nope"],
  [["org", "list", "-x"], "-x"],
  [["org", "list", "more"], "more"],
  [["org", "list", "--json=1"], "--json"],
  [["org", "list", "--limit"], "--limit"],
  [["org", "list", "--limit", "0"], "--limit"],
  [["org", "list", "--limit", "1e2"], "--limit"],
  [["org", "list", "--offset", "-1"], "--offset"],
  [["org", "list", "--limit", "5", "--limit", "6"], "--limit"],
  [["org", "list", "--limit", "--json"], "--limit"],
  [["org", "create"], "--name"],
  [["org", "create", "--name", ""], "--name"],
  [["org", "create", "--name", "  "], "--name"],
  [["org", "create", "--name", "a\u0000b"], "--name"],
  [["org", "create", "--name", "a\nb"], "--name"],
  [["org", "create", "--name", "a\ud800b"], "--name"],
  [["org", "create", "--name", "a".repeat(257)], "--name"],
  [["org", "create", "--name", "A", "--plan", "gold"], "--plan"],
  [["keys", "create", "--org", "org_1"], "--name"],
  [["keys", "create", "--org", "o", "--name", "k", "--kind", "root"], "--kind"],
  [["keys", "create", "--org", "o", "--name", "k", "--scopes", ""], "--scopes"],
  [["keys", "create", "--org", "o", "--name", "k", "--scopes", "audio,all"], "--scopes"],
  [["keys", "create", "--org", "o", "--name", "k", "--scopes", "audio,audio"], "--scopes"],
  [["keys", "revoke"], "--id"],
  [["keys", "revoke", "key_1", "key_2"], "key_2"],
  [["keys", "revoke", "key_1", "--id", "key_2"], "one key"],
  [["keys", "generate", "--kind", "__proto__"], "--kind"],
  [["migrate", "now"], "now"],
  [["doctor", "--verbose"], "--verbose"],
])("%j is refused in one line that names %s, with exit code 2", async (argv, named) => {
  const { exitCode, output, errorText: complaint } = await run(...argv);
  expect({ exitCode, output }).toEqual({ exitCode: 2, output: "" });
  expect(complaint).toMatch(/^[^\n]+\n$/);
  expect(complaint).toContain(named);
});

test.each([
  "0",
  "-0",
  "0.000",
  "1e3",
  "1,5",
  "+5",
  ".5",
  "5.",
  " 5",
  "$5",
  "0x10",
  "NaN",
  "Infinity",
  "-Infinity",
  "1.0000000001",
  "1000000000.000000001",
  "-1000000001",
  "99999999999",
])("an amount of %j is refused", async (amount) => {
  const { exitCode, errorText: complaint } = await run(
    ...["credits", "adjust", "--org", "o", `--amount-usd=${amount}`, "--description", "d"],
  );
  expect(exitCode).toBe(2);
  expect(complaint).toContain("--amount-usd");
});

test.each(["5", "-5", "0.000000001", "-0.000000001", "1000000000", "-1000000000.000000000"])(
  "an amount of %j is taken, also as an argument of its own",
  async (amount) => {
    const { exitCode, errorText: complaint } = await run(
      ...["credits", "adjust", "--org", "o", "--amount-usd", amount, "--description", "d"],
    );
    expect(exitCode).toBe(1);
    expect(complaint).toStartWith("database_unavailable: ");
  },
);

test.each(["", " ", "a\u0000", "a\u001b[31m", "\ud800", "d".repeat(501)])(
  "a description of %j is refused",
  async (description) => {
    const { exitCode, errorText: complaint } = await run(
      ...["credits", "adjust", "--org", "o", "--amount-usd", "1", `--description=${description}`],
    );
    expect(exitCode).toBe(2);
    expect(complaint).toContain("--description");
  },
);

test("whatever is typed ends in an exit code and at most one line of complaint", async () => {
  const word = fc.oneof(
    fc.string(),
    fc.constantFrom(
      "org",
      "keys",
      "generate",
      "--json",
      "--help",
      "--kind",
      "--",
      "-h",
      "=",
      "--=",
    ),
  );
  // Commands that reach a database or providers are left out: this is about the command line.
  const lines = fc.array(word, { maxLength: 6 }).map((words) => ["keys", "generate", ...words]);
  await fc.assert(
    fc.asyncProperty(fc.oneof(lines, fc.array(fc.string(), { maxLength: 4 })), async (argv) => {
      const { exitCode, errorText: complaint } = await run(...argv);
      expect([0, 1, 2]).toContain(exitCode);
      expect(complaint).toMatch(exitCode === 0 ? /^$/ : /^[^\n]+\n$/);
    }),
  );
});

test("help tells every command, each noun its verbs, and each command its options", async () => {
  const everything = await run("--help");
  expect(everything.exitCode).toBe(0);
  expect((await run()).output).toBe(everything.output);
  expect((await run("help")).output).toBe(everything.output);
  for (const { noun, verb, options } of COMMANDS) {
    const words = verb === undefined ? [noun] : [noun, verb];
    expect(everything.output).toContain(words.join(" "));
    expect((await run(noun, "--help")).output).toContain(words.join(" "));
    const own = await run(...words, "--help");
    expect(own.exitCode).toBe(0);
    expect(await run("help", ...words)).toEqual(own);
    for (const line of [...everything.output.split("\n"), ...own.output.split("\n")]) {
      expect({ line, fits: line.length <= 80 }).toEqual({ line, fits: true });
    }
    for (const name of [...Object.keys(options), "json"]) expect(own.output).toContain(`--${name}`);
  }
});

test.each([
  [["key"], "did you mean keys?"],
  [["keys", "creat"], "did you mean create?"],
  [["keys", "create", "--nme", "x"], "did you mean --name?"],
  [["help", "doctr"], "did you mean doctor?"],
])("%j is refused with the nearest name", async (argv, suggestion) => {
  const { exitCode, errorText } = await run(...argv);
  expect(exitCode).toBe(2);
  expect(errorText).toEndWith(`${suggestion}\n`);
});

test("a command in a folder without a database creates none, and names the folder", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-cli-"));
  try {
    const missing = join(folder, "missing");
    for (const [dataDir, fault] of [
      [missing, "does not exist"],
      [folder, "has no database"],
    ] as const) {
      const { exitCode, stderr } = await runCliHere({ DATA_DIR: dataDir }, "keys", "list");
      expect({ exitCode, stderr }).toEqual({
        exitCode: 1,
        stderr: `the data folder ${dataDir} ${fault}: start the gateway once, or set DATA_DIR or DATABASE_URL as for the gateway\n`,
      });
    }
    expect(readdirSync(folder)).toEqual([]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the process ends with the exit code, its complaint on standard error alone", async () => {
  const refused = await runCliProcess({}, "keys", "nope");
  expect(refused).toMatchObject({ exitCode: 2, stdout: "" });
  expect(refused.stderr).toMatch(/^[^\n]+\n$/);
  expect(await runCliProcess({}, "--help")).toMatchObject({ exitCode: 0, stderr: "" });
});

test("keys generate prints a well-formed key of its kind, without a database", async () => {
  for (const kind of ["secret", "management"] as const) {
    const { exitCode, output } = await run("keys", "generate", "--kind", kind);
    expect(exitCode).toBe(0);
    expect(parseApiKey(output.trimEnd())).toEqual({ kind });
    const asJson = await run("keys", "generate", "--kind", kind, "--json");
    const printed = JSON.parse(asJson.output) as { kind: string; key: string };
    expect(printed.kind).toBe(kind);
    expect(parseApiKey(printed.key)).toEqual({ kind });
  }
  expect((await run("keys", "generate")).output).toStartWith("gateway_sk_");
});

test("models list needs no database, and shows what the environment enables", async () => {
  const listed = await runCliProcess(
    { OPENAI_API_KEY: "sk-0123456789" },
    ...["models", "list", "--json"],
  );
  const { object, data } = printed<{ object: string; data: { id: string }[] }>(listed);
  expect(object).toBe("list");
  const ids = data.map(({ id }) => id);
  expect(ids).toContain("openai/gpt-4o-mini");
  expect(ids).toContain("sandbox/chat");
  expect(listed.stdout).not.toContain("sk-0123456789");
  const { output } = await run("models", "list", "--provider", "sandbox");
  expect(output).toContain("sandbox/chat ");
  expect(output).not.toContain("openai/");
});

interface Row {
  readonly model: string;
  readonly [member: string]: unknown;
}

test("models prices --diff lists the prices that differ from the provider's own list", async () => {
  const { models } = await builtInModels("together", new Date());
  const [same, other] = models.filter(({ isActive, category }) => isActive && category === "chat");
  const [sameName, otherName] = [same!, other!].map(({ endpoints }) => endpoints[0]!.model);
  const perMillion = (femto: bigint) => Number(femto) / 1e9;
  const input = perMillion(same!.prices.inputTokenFemto);
  using server = Bun.serve({
    port: 0,
    fetch: () =>
      Response.json([
        {
          id: sameName,
          pricing: {
            input,
            output: perMillion(same!.prices.outputTokenFemto),
            cached_input: perMillion(same!.prices.cachedInputTokenFemto),
          },
        },
        { id: otherName, pricing: { input: 123, output: 456 } },
      ]),
  });
  const environment = {
    TOGETHER_API_KEY: "key",
    TOGETHER_BASE_URL: `http://127.0.0.1:${server.port}/v1`,
  };
  const listed = await runCliProcess(
    environment,
    ...["models", "prices", "--diff", "--provider", "together", "--json"],
  );
  const { data, providers } = printed<{ data: Row[]; providers: object[] }>(listed);
  expect(providers).toEqual([{ provider: "together", compared: 2 }]);
  expect(data.filter(({ model }) => model === sameName && model !== otherName)).toEqual([]);
  expect(data).toContainEqual({
    ...{ provider: "together", model: otherName!, unit: "input" },
    built_in_usd_per_million: perMillion(other!.prices.inputTokenFemto),
    list_usd_per_million: 123,
  });
  const all = await runCliProcess(environment, "models", "prices", "--provider", "together");
  expect(all.stdout).toContain(sameName!);
  const down = await runCliProcess(
    { ...environment, TOGETHER_BASE_URL: "http://127.0.0.1:9/v1" },
    ...["models", "prices", "--provider", "together"],
  );
  expect(down.stdout).toContain("together: not compared, ");
});

test("models built-in counts the models of every type of provider, and says why others are left out", async () => {
  const { exitCode, output } = await run("models", "built-in", "--json");
  expect(exitCode).toBe(0);
  const { data } = JSON.parse(output) as {
    data: { type: string; total: number; models: object; left_out: { reason: string }[] }[];
  };
  expect(data.map(({ type }) => type)).toEqual(Object.keys(PROVIDER_TYPES));
  for (const { type, total, models, left_out: leftOut } of data) {
    expect(Object.values(models).reduce((sum, count) => sum + count, 0)).toBe(total);
    for (const { reason } of leftOut) expect(reason).toMatch(/\S/);
    const { genaiPricesId, noBuiltInModelsReason, isSelfHosted } = PROVIDER_TYPES[type]!;
    // A type that brings none says why.
    const isExplained = leftOut.length > 0 || (noBuiltInModelsReason ?? isSelfHosted) !== undefined;
    expect({ type, isExplained: total > 0 || isExplained }).toEqual({ type, isExplained: true });
    if (total === 0) expect(genaiPricesId === undefined || leftOut.length > 0).toBeTrue();
  }
  const { output: table } = await run(
    "models",
    "built-in",
    "--provider",
    "perplexity",
    "--left-out",
  );
  expect(table).toMatch(/^perplexity +9 +Perplexity ended its chat completions/m);
});

test("models list says for each provider how many models it brings, and what is left out and why", async () => {
  const listed = await runCliProcess(
    { OPENAI_API_KEY: "sk-0123456789", NVIDIA_API_KEY: "nv-0123456789" },
    ...["models", "list", "--json"],
  );
  const { data, providers } = printed<{
    data: { provider: string }[];
    providers: { provider: string; models: number; left_out: object[]; reason?: string }[];
  }>(listed);
  const [openai, nvidia] = providers;
  expect(openai).toMatchObject({ provider: "openai", type: "openai" });
  expect(openai!.models).toBe(data.filter(({ provider }) => provider === "openai").length);
  expect(openai!.left_out).toContainEqual({
    name: "davinci",
    reason: "no list has its context length",
  });
  expect(nvidia).toMatchObject({ provider: "nvidia", models: 0, left_out: [] });
  expect(nvidia!.reason).toContain("prices");
  const people = await runCliProcess(
    { OPENAI_API_KEY: "sk-0123456789" },
    ...["models", "list", "--provider", "openai", "--left-out"],
  );
  expect(people.stdout).toContain(`openai: ${openai!.models} models`);
  expect(people.stdout).toMatch(/^openai +davinci +no list has its context length$/m);
});

test("a database that does not answer is told in one line, without its password", async () => {
  const { exitCode, stderr } = await runCliProcess(
    { DATABASE_URL: "postgres://nobody:s3cret@127.0.0.1:1/none" },
    ...["org", "list"],
  );
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(/^database_unavailable: [^\n]+\n$/);
  expect(stderr).not.toContain("s3cret");
});
