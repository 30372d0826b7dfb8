import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectDatabase } from "../../db/client.ts";
import { version } from "../../package.json";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { exitOf, type GatewayProcess, Grounds } from "../crash/gateway-process.ts";
import { createEmptyDatabase, createTestDatabase } from "../support/database.ts";
import { chat } from "./client.ts";

const TIMEOUT_MS = 60_000;
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");
/** A start that is refused says so within that time. */
const REFUSAL_MS = 8_000;

const grounds = new Grounds("refused");
afterAll(() => grounds.clear());

/** A start that fails: exit code 1, and one line that says why. */
async function refusal(gateway: GatewayProcess, lines = 1): Promise<string> {
  expect(await exitOf(gateway)).toBe(1);
  expect(performance.now() - gateway.startedMs).toBeLessThan(REFUSAL_MS);
  const said = gateway.stderr();
  expect(said.endsWith("\n")).toBeTrue();
  expect(said.trimEnd().split("\n")).toHaveLength(lines);
  expect(gateway.stdout()).not.toContain("listening on");
  return said.trimEnd();
}

// test/config/settings-refused.test.ts tries the values of every setting, in process.
describe("a wrong setting stops the start with one line that names it, its value, and what is accepted", () => {
  test.each([
    ["PORT", "eighty", "a whole number from 0 to 65535"],
    ["HOST", "203.0.113.1", "an address of this machine"],
    ["DATABASE_URL", "mysql://example.com/db", "a URL like postgres://"],
  ])(
    "%s=%s",
    async (name, value, accepted) => {
      const environment = { GATEWAY_MASTER_KEY: MASTER_KEY, [name]: value };
      const line = await refusal(grounds.launch({ dataDir: grounds.newDataDir(), environment }));
      expect(line).toStartWith(`${name} is ${JSON.stringify(value)}, but must be `);
      expect(line).toContain(accepted);
    },
    TIMEOUT_MS,
  );

  test.each([
    ["GATEWAY_SECRET_KEY", generateApiKey("management").key],
    ["GATEWAY_MASTER_KEY", "c2hvcnQ="],
  ])(
    "%s, a secret, whose value is not shown",
    async (name, value) => {
      const environment = { [name]: value };
      const line = await refusal(grounds.launch({ dataDir: grounds.newDataDir(), environment }));
      expect(line).toStartWith(`${name} is ***, but must be `);
      expect(line).not.toContain(value);
    },
    TIMEOUT_MS,
  );

  test(
    "a configuration file that is missing, is no JSON, or holds something unknown",
    async () => {
      const path = join(grounds.folder, "broken.json");
      const lineFor = async (text: string | undefined) => {
        if (text !== undefined) writeFileSync(path, text);
        const environment = { GATEWAY_CONFIG: text === undefined ? `${path}.missing` : path };
        return refusal(grounds.launch({ dataDir: grounds.newDataDir(), environment }));
      };
      expect(await lineFor(undefined)).toContain(`${path}.missing`);
      expect(await lineFor("{not json")).toContain(path);
      const unknown = await lineFor('{"providers": [{"id": "p", "type": "telepathy"}]}');
      expect(unknown).toContain("/providers/0/type");
      expect(unknown).toContain("telepathy");
    },
    TIMEOUT_MS,
  );
});

test(
  "all faults of settings, providers, models and aliases are reported by one start, which creates nothing",
  async () => {
    const path = join(grounds.folder, "faulty.json");
    const hosted = { id: "hosted", type: "openai-compatible", base_url: "https://llm.example/v1" };
    const sold = { category: "chat", context_length: 8_000 };
    const prices = { input_cost_per_token: 1e-7, output_cost_per_token: 1e-7 };
    const endpoints = [{ provider: "hosted", model: "big" }];
    writeFileSync(
      path,
      JSON.stringify({
        providers: [hosted, { ...hosted, id: "odd", type: "openai-compatibel" }],
        models: [
          { ...sold, id: "acme/unpriced", endpoints },
          { ...sold, ...prices, id: "acme/sound", endpoints },
          { ...sold, ...prices, id: "acme/misspelled", endpoints, context_lenght: 8_000 },
          { ...sold, id: "acme/odd", endpoints: [{ provider: "odd", model: "big" }] },
          { id: "nothing", alias_of: "acme/soud" },
          { id: "alias", alias_of: "acme/sound" },
          { id: "of-misspelled", alias_of: "acme/misspelled" },
        ],
      }),
    );
    const environment = { GATEWAY_CONFIG: path, LOG_LEVEL: "loud" };
    const dataDir = grounds.newDataDir();
    const said = await refusal(grounds.launch({ dataDir, environment }), 5);
    for (const fault of [
      /^LOG_LEVEL is "loud"/m,
      /\/providers\/1\/type .*; did you mean openai-compatible\?$/m,
      /\/models\/0 \(acme\/unpriced\) .*needs input_cost_per_token/m,
      /context_lenght is unknown, .*; did you mean context_length\?$/m,
      /\(nothing\) is an alias of acme\/soud, .*; did you mean acme\/sound\?$/m,
    ]) {
      expect(said).toMatch(fault);
    }
    expect(existsSync(dataDir) ? readdirSync(dataDir) : []).toEqual([]);
  },
  TIMEOUT_MS,
);

test(
  "several wrong settings are told together, a line for each",
  async () => {
    const environment = { LOG_LEVEL: "loud", GATEWAY_KEEPALIVE_MS: "soon", OPENAI_BASE_URL: "x" };
    const said = await refusal(grounds.launch({ dataDir: grounds.newDataDir(), environment }), 3);
    for (const name in environment) expect(said).toContain(`${name} is `);
  },
  TIMEOUT_MS,
);

test(
  "a database of one's own without a master key is refused",
  async () => {
    const environment = { DATABASE_URL: "postgres://nobody:hidden@127.0.0.1:9/none" };
    const gateway = grounds.launch({ dataDir: grounds.newDataDir(), environment });
    expect(await refusal(gateway)).toStartWith("GATEWAY_MASTER_KEY is not set");
  },
  TIMEOUT_MS,
);

test(
  "a database of another program is refused by the name of a table, and stays as it is",
  async () => {
    const database = await createEmptyDatabase();
    const sql = connectDatabase(database, { poolSize: 1, applicationName: "other program" });
    try {
      await sql`CREATE TABLE customers (id int)`;
      // Its migrations have a table of the same name as the gateway's.
      await sql`CREATE SCHEMA drizzle`;
      await sql`CREATE TABLE drizzle.__drizzle_migrations (
        id SERIAL PRIMARY KEY, hash text NOT NULL, created_at bigint)`;
      await sql`INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES ('a', 9e15)`;
      const environment = { DATABASE_URL: database.url, GATEWAY_MASTER_KEY: MASTER_KEY };
      const line = await refusal(grounds.launch({ dataDir: grounds.newDataDir(), environment }));
      expect(line).toMatch(
        /^the database belongs to another program \(it has the table \w+\): set DATABASE_URL to /,
      );
      const tables = await sql`
        SELECT tablename FROM pg_tables WHERE schemaname IN ('public', 'drizzle') ORDER BY 1`;
      expect(tables.map(({ tablename }) => tablename)).toEqual([
        "__drizzle_migrations",
        "customers",
      ]);
    } finally {
      await sql.end({ timeout: 1 });
      await database.drop();
    }
  },
  TIMEOUT_MS,
);

test(
  "a data folder that is a file, or that cannot be made, is refused by its setting and its name",
  async () => {
    const file = join(grounds.folder, "a-file");
    writeFileSync(file, "");
    const database = await createTestDatabase();
    for (const dataDir of [file, join(file, "below")]) {
      const environments: Record<string, string>[] = [
        {},
        { DATABASE_URL: database.url, GATEWAY_MASTER_KEY: MASTER_KEY },
      ];
      for (const environment of environments) {
        const line = await refusal(grounds.launch({ dataDir, cwd: grounds.folder, environment }));
        expect(line).toStartWith(`DATA_DIR is ${JSON.stringify(dataDir)}, but must be a folder`);
      }
    }
    await database.drop();
  },
  TIMEOUT_MS,
);

describe("a second gateway", () => {
  test(
    "on the same data folder is refused in a line that names the first, which goes on",
    async () => {
      const dataDir = await grounds.newDataDirWithDatabase();
      const first = grounds.launch({ dataDir });
      const baseUrl = await first.listening;
      const line = await refusal(grounds.launch({ dataDir }));
      expect(line).toContain(`the data folder ${dataDir} is in use by process ${first.pid}`);
      const { secret_key: key } = await Bun.file(join(dataDir, "first-keys.json")).json();
      expect((await chat(baseUrl, key)).status).toBe(200);
      first.signal("SIGTERM");
      expect(await exitOf(first)).toBe(0);
    },
    TIMEOUT_MS,
  );

  test(
    "on the same database is refused in a line that says what to do, and the first goes on",
    async () => {
      const database = await createTestDatabase();
      const environment = { DATABASE_URL: database.url, GATEWAY_MASTER_KEY: MASTER_KEY };
      const dataDir = grounds.newDataDir();
      const first = grounds.launch({ dataDir, environment });
      const baseUrl = await first.listening;
      const line = await refusal(grounds.launch({ dataDir: grounds.newDataDir(), environment }));
      expect(line).toContain("another gateway is running on this database");
      expect(line).toContain("REDIS_URL");
      const { secret_key: key } = await Bun.file(join(dataDir, "first-keys.json")).json();
      expect((await chat(baseUrl, key)).status).toBe(200);
      first.signal("SIGTERM");
      expect(await exitOf(first)).toBe(0);
      const third = grounds.launch({ dataDir, environment });
      expect((await chat(await third.listening, key)).status).toBe(200);
      third.signal("SIGTERM");
      expect(await exitOf(third)).toBe(0);
      await database.drop();
    },
    TIMEOUT_MS,
  );

  test(
    "on the same port is refused in a line that names it, and leaves no database behind",
    async () => {
      const taken = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
      const dataDir = grounds.newDataDir();
      mkdirSync(dataDir, { mode: 0o711 });
      const environment = { PORT: String(taken.port) };
      const line = await refusal(grounds.launch({ dataDir, environment }));
      expect(line).toBe(
        `PORT: port ${taken.port} on 127.0.0.1 is already in use by another program: stop it, or set PORT to a free port`,
      );
      expect(grounds.runningServers()).toEqual([]);
      expect(readdirSync(dataDir)).toEqual([]);
      await taken.stop(true);
    },
    TIMEOUT_MS,
  );

  test(
    "on the port of another gateway is refused in a line that says so",
    async () => {
      const first = grounds.launch({ dataDir: await grounds.newDataDirWithDatabase() });
      const { port } = new URL(await first.listening);
      const environment = { PORT: port };
      const line = await refusal(grounds.launch({ dataDir: grounds.newDataDir(), environment }));
      expect(line).toBe(
        `PORT: port ${port} on 127.0.0.1 is already in use by a running gateway (version ${version}): stop it, or set PORT to a free port`,
      );
      first.signal("SIGTERM");
      expect(await exitOf(first)).toBe(0);
      expect(first.stdout()).toMatch(
        /"msg":"draining: 0 requests running"[\s\S]*"msg":"stopped"\}\n$/,
      );
    },
    TIMEOUT_MS,
  );
});
