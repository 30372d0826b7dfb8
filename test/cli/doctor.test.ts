import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { connectDatabase } from "../../db/client.ts";
import { serviceAccount, startCloudUpstream } from "../support/cloud-upstream.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { s3Environment } from "../support/files-gateway.ts";
import { startTestGateway } from "../support/gateway.ts";
import { findRedisBinary } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { startS3Server } from "../support/s3-server.ts";
import { startSearchUpstream } from "../support/search-upstream.ts";
import { StripeServer } from "../support/stripe-server.ts";
import { runCliHere, runCliProcess } from "./cli-runs.ts";

interface Check {
  readonly name: string;
  readonly state: string;
  readonly detail: string;
}

const redisBinary = await findRedisBinary();
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");
let database: TestDatabase;
let folder: string;
let listener: Server;
/** Settings under which nothing is wrong. */
let sound: Record<string, string>;

beforeAll(async () => {
  database = await createTestDatabase();
  folder = mkdtempSync(join(tmpdir(), "gateway-doctor-"));
  listener = createServer((_request, response) => response.writeHead(404).end());
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address() as { port: number };
  sound = {
    DATABASE_URL: database.url,
    GATEWAY_MASTER_KEY: MASTER_KEY,
    DATA_DIR: join(folder, "data"),
    OPENAI_API_KEY: "sk-secret-0123456789",
    OPENAI_BASE_URL: `http://127.0.0.1:${address.port}/v1`,
  };
  mkdirSync(sound.DATA_DIR!);
});
afterAll(async () => {
  listener.close();
  rmSync(folder, { recursive: true });
  await database.drop();
});

async function diagnose(settings: Record<string, string>, ...options: readonly string[]) {
  const free = { PORT: "0", ...settings };
  const { exitCode, stdout, stderr } = await runCliHere(free, "doctor", "--json", ...options);
  expect(stderr).toBe("");
  const { ok, checks } = JSON.parse(stdout) as { ok: boolean; checks: Check[] };
  expect(exitCode).toBe(ok ? 0 : 1);
  const wrongs = checks.filter(({ state }) => state === "wrong");
  expect(ok).toBe(wrongs.length === 0);
  return { checks, wrongs };
}

test("where nothing is wrong every part is named as such, with exit code 0 and no secret", async () => {
  const { checks } = await diagnose(sound);
  expect(checks.map(({ name, state }) => `${state} ${name}`)).toEqual([
    "ok configuration",
    "ok port",
    "ok data folder",
    "ok master key",
    "ok database",
    "ok migrations",
    "ok gateway",
    "ok sealed values",
    "ok file storage",
    "ok payments",
    "ok provider openai",
    "ok provider sandbox",
    "ok models of openai",
  ]);
  const { detail } = checks.find(({ name }) => name === "models of openai")!;
  expect(detail).toMatch(
    /^\d+; \d+ left out: [\w.-]+ \([a-zA-Z][^)]+\), .*; all: models list --left-out$/,
  );
  expect(JSON.stringify(checks)).toMatch(/Postgres 1[5-9]|Postgres [2-9]\d/);
  const people = await runCliProcess({ PORT: "0", ...sound }, "doctor");
  expect(people).toMatchObject({ exitCode: 0, stderr: "" });
  expect(people.stdout).toEndWith("No faults found.\n");
  const password = new URL(database.url).password;
  for (const secret of [MASTER_KEY, "sk-secret-0123456789", ...(password ? [password] : [])]) {
    expect(people.stdout + JSON.stringify(checks)).not.toContain(secret);
  }
  expect(readdirSync(sound.DATA_DIR!)).toEqual([]);
});

test("a setting that stops the start is told beside what can be looked at without it", async () => {
  const { checks, wrongs } = await diagnose({ ...sound, GATEWAY_MASTER_KEY: "short" });
  expect(wrongs.map(({ name }) => name)).toEqual(["configuration"]);
  expect(wrongs[0]!.detail).toStartWith("GATEWAY_MASTER_KEY is ***");
  expect(checks.map(({ name }) => name)).toContain("database");
  const { checks: bare } = await diagnose({ ...sound, PORT: "many" });
  expect(bare).toEqual([
    { name: "configuration", state: "wrong", detail: expect.stringContaining("PORT") },
  ]);
});

test("all settings that stop the start are told, each by itself", async () => {
  const { wrongs } = await diagnose({ ...sound, PORT: "many", LOG_LEVEL: "loud" });
  expect(wrongs.map(({ name, detail }) => `${name} ${detail.split(" ")[0]}`)).toEqual([
    "configuration PORT",
    "configuration LOG_LEVEL",
  ]);
});

test("the model that moderates is named", async () => {
  const GATEWAY_MODERATION_MODEL = "openai/omni-moderation-latest";
  const { checks } = await diagnose({ ...sound, GATEWAY_MODERATION_MODEL });
  const detail = GATEWAY_MODERATION_MODEL;
  expect(checks).toContainEqual({ name: "moderation", state: "ok", detail });
});

test("the search backend is reported, and with --live whether it searches", async () => {
  const upstream = startSearchUpstream();
  const settings = {
    ...sound,
    GATEWAY_SEARCH_BACKEND: "exa",
    GATEWAY_SEARCH_URL: upstream.url,
    GATEWAY_SEARCH_API_KEY: "search-secret-0123456789",
  };
  const place = `exa at ${upstream.url}`;
  const found = async (...options: string[]) => {
    const { checks } = await diagnose(settings, ...options);
    expect(JSON.stringify(checks)).not.toContain("search-secret");
    return checks.filter(({ name }) => name === "web search");
  };
  const page = { url: "https://weather.example/", title: "Weather", text: "It rains." };
  upstream.answer = () => Response.json({ results: [page] });
  expect(await found()).toEqual([{ name: "web search", state: "ok", detail: place }]);
  expect(await found("--live")).toEqual([
    { name: "web search", state: "ok", detail: `${place} returns results` },
  ]);
  upstream.answer = () => new Response("bad key", { status: 401 });
  const [refused] = await found("--live");
  expect(refused).toMatchObject({ state: "wrong" });
  expect(refused!.detail).toContain("rejects the gateway's credentials (status 401)");
  await upstream.stop();
  const [gone] = await found();
  expect(gone).toMatchObject({ state: "wrong", detail: expect.stringContaining(place) });
});

test("Stripe is asked with --live whether it accepts its key", async () => {
  const stripe = new StripeServer();
  const found = async (secretKey: string) => {
    const access = { ...stripe.environment, STRIPE_SECRET_KEY: secretKey };
    const { checks } = await diagnose({ ...sound, ...access }, "--live");
    expect(JSON.stringify(checks)).not.toContain(secretKey);
    return checks.filter(({ name }) => name === "payments");
  };
  const detail = `Stripe at ${stripe.url} accepts its key`;
  expect(await found(StripeServer.SECRET_KEY)).toEqual([{ name: "payments", state: "ok", detail }]);
  expect(await found("sk_test_another")).toMatchObject([{ state: "wrong" }]);
  await stripe.stop();
});

test("a port that another program has is wrong", async () => {
  const taken = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response("ok") });
  const { wrongs } = await diagnose({ ...sound, PORT: String(taken.port) });
  expect(wrongs).toEqual([
    {
      name: "port",
      state: "wrong",
      detail: `PORT: port ${taken.port} on 127.0.0.1 is already in use by another program: stop it, or set PORT to a free port`,
    },
  ]);
  await taken.stop(true);
});

test("a model of the file that the catalogue cannot complete is wrong, as it is at the start", async () => {
  const path = join(folder, "incomplete.json");
  writeFileSync(path, JSON.stringify({ models: [{ id: "openai/unheard-of", category: "chat" }] }));
  const { wrongs } = await diagnose({ ...sound, GATEWAY_CONFIG: path });
  expect(wrongs.map(({ name }) => name)).toEqual(["configuration"]);
  expect(wrongs[0]!.detail).toContain("/models/0 (openai/unheard-of)");
});

describe("with --live", () => {
  const KEY = "sk-live-0123456789";
  let listed: unknown;
  let isPublic = false;
  let upstream: ReturnType<typeof Bun.serve>;
  beforeAll(() => {
    upstream = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch(request) {
        if (new URL(request.url).pathname !== "/v1/models")
          return new Response("", { status: 500 });
        const isKnown = request.headers.get("authorization") === `Bearer ${KEY}`;
        return isKnown || isPublic ? Response.json(listed) : Response.json({}, { status: 401 });
      },
    });
  });
  afterAll(() => upstream.stop(true));
  const live = async (apiKey: string) => {
    const path = join(folder, "live.json");
    const provider = {
      id: "there",
      type: "openai-compatible",
      base_url: `http://127.0.0.1:${upstream.port}/v1`,
      api_key: apiKey,
    };
    const model = {
      id: "there/a",
      context_length: 100,
      input_cost_per_token: 0,
      output_cost_per_token: 0,
      endpoints: ["a", "b"].map((name) => ({ provider: "there", model: name })),
    };
    writeFileSync(path, JSON.stringify({ providers: [provider], models: [model] }));
    const { OPENAI_API_KEY: _, OPENAI_BASE_URL: __, ...rest } = sound;
    const { checks } = await diagnose({ ...rest, GATEWAY_CONFIG: path }, "--live");
    expect(JSON.stringify(checks)).not.toContain(apiKey);
    return checks.filter(({ name }) => name.startsWith("live"));
  };

  test("a provider that takes its key and knows the models is in order", async () => {
    listed = { object: "list", data: [{ id: "a" }, { id: "b" }] };
    expect(await live(KEY)).toEqual([
      {
        name: "live there",
        state: "ok",
        detail: "accepts its key, lists the 2 models of the catalogue",
      },
    ]);
  });

  test("a refused key is wrong, and a model that is not listed is named", async () => {
    const [refused] = await live("sk-another-0123456789");
    expect(refused).toMatchObject({ state: "wrong" });
    expect(refused!.detail).toEndWith("rejects its key (status 401)");
    listed = [{ id: "a" }];
    expect(await live(KEY)).toEqual([
      { name: "live there", state: "warning", detail: "accepts its key, does not list 1 of 2: b" },
    ]);
  });

  test("a list that everybody may read proves no key, and what is no list proves nothing", async () => {
    isPublic = true;
    listed = { data: [{ id: "a" }, { id: "b" }] };
    const [open] = await live("sk-another-0123456789");
    expect(open!.detail).toContain("the key was not checked");
    listed = "no list";
    expect(await live(KEY)).toMatchObject([{ state: "warning" }]);
  });

  test("credentials are exchanged for a token, and shown to nothing but its endpoint", async () => {
    const cloud = startCloudUpstream();
    const path = join(folder, "cloud.json");
    const key = serviceAccount(cloud.origin);
    const provider = { id: "v", type: "vertex", base_url: cloud.baseUrl, api_key: key };
    writeFileSync(path, JSON.stringify({ providers: [provider] }));
    const check = async () => {
      const { checks } = await diagnose({ ...sound, GATEWAY_CONFIG: path }, "--live");
      expect(JSON.stringify(checks)).not.toContain(key.slice(100, 200));
      return checks.find(({ name }) => name === "live v");
    };
    cloud.answer = () => Response.json({ totalTokens: 1 });
    const detail = `${cloud.baseUrl} accepts its credentials`;
    expect(await check()).toEqual({ name: "live v", state: "ok", detail });
    cloud.answer = () => Response.json({ error: { code: 403 } }, { status: 403 });
    expect(await check()).toMatchObject({ state: "wrong" });
    // Whether the address answers at all is asked without a key.
    const shown = cloud.asked.flatMap(({ headers }) => headers.get("authorization") ?? []);
    expect(shown.length).toBePositive();
    for (const one of shown) expect(one).toStartWith("Bearer ya29.token-");
    await cloud.stop();
  }, 60_000);
});

test("a setting without effect is a warning, and nothing wrong", async () => {
  const { checks } = await diagnose({ ...sound, GATEWAY_MASTERKEY: "x" });
  expect(checks).toContainEqual({
    name: "configuration",
    state: "warning",
    detail: expect.stringContaining("GATEWAY_MASTERKEY"),
  });
});

test("a database that does not answer, and one that is not there, are wrong", async () => {
  for (const url of ["postgres://nobody:s3cret@127.0.0.1:1/none", `${database.url}_none`]) {
    const { wrongs } = await diagnose({ ...sound, DATABASE_URL: url });
    expect(wrongs.map(({ name }) => name)).toEqual(["database"]);
    expect(wrongs[0]!.detail).not.toContain("s3cret");
  }
});

test("a schema that is behind is wrong, one that is ahead a warning, and both stay as they are", async () => {
  const name = `${new URL(database.url).pathname.slice(1)}_schema`;
  const admin = connectDatabase(database, { poolSize: 1, applicationName: "test" });
  await admin`CREATE DATABASE ${admin(name)}`;
  const url = new URL(database.url);
  url.pathname = `/${name}`;
  const settings = { ...sound, DATABASE_URL: url.href };
  try {
    for (const _ of ["first", "second"]) {
      const { wrongs } = await diagnose(settings);
      expect(wrongs.map(({ name }) => name)).toEqual(["migrations"]);
      expect(wrongs[0]!.detail).toContain("0000_baseline");
    }
    await runCliHere(settings, "migrate");
    const sql = connectDatabase({ url: url.href }, { poolSize: 1, applicationName: "test" });
    await sql`INSERT INTO drizzle.__drizzle_migrations (hash, created_at)
      VALUES ('later', 99999999999999)`;
    await sql.end();
    const { checks, wrongs } = await diagnose(settings);
    expect(wrongs).toEqual([]);
    expect(checks).toContainEqual(
      expect.objectContaining({ name: "migrations", state: "warning" }),
    );
  } finally {
    await admin`DROP DATABASE ${admin(name)} WITH (FORCE)`;
    await admin.end();
  }
});

test("a provider whose address nobody listens on is wrong", async () => {
  const { wrongs } = await diagnose({ ...sound, GROQ_BASE_URL: "http://127.0.0.1:1/v1" });
  expect(wrongs).toEqual([
    {
      name: "provider groq",
      state: "wrong",
      detail:
        "http://127.0.0.1:1/v1 cannot be reached: the connection could not be opened (ECONNREFUSED)",
    },
  ]);
});

test("a provider whose certificate is not accepted is wrong, and the reason is named", async () => {
  const fixture = (name: string) => Bun.file(join(import.meta.dir, "../fixtures/tls", name));
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    tls: { cert: fixture("transport-expired.crt"), key: fixture("transport-expired.key") },
    fetch: () => new Response("ok"),
  });
  const baseUrl = `https://127.0.0.1:${server.port}/v1`;
  const { wrongs } = await diagnose({ ...sound, GROQ_BASE_URL: baseUrl });
  await server.stop(true);
  expect(wrongs.map(({ name }) => name)).toEqual(["provider groq"]);
  expect(wrongs[0]!.detail).toContain("certificate is not accepted");
});

test("a provider behind a proxy is tried through the proxy, and where NO_PROXY names it, directly", async () => {
  const proxied = { ...sound, HTTP_PROXY: "http://127.0.0.1:2" };
  const { wrongs } = await diagnose(proxied);
  expect(wrongs.map(({ detail }) => detail)).toEqual([
    `${sound.OPENAI_BASE_URL} cannot be reached: the connection to the proxy could not be opened (ECONNREFUSED)`,
  ]);
  expect((await diagnose({ ...proxied, NO_PROXY: "127.0.0.1" })).wrongs).toEqual([]);
});

test("a Redis that does not answer is wrong, told without its password", async () => {
  const { wrongs } = await diagnose({ ...sound, REDIS_URL: "redis://:s3cret@127.0.0.1:1" });
  expect(wrongs.map(({ name }) => name)).toEqual(["redis"]);
  expect(wrongs[0]!.detail).not.toContain("s3cret");
});

test("a bucket for files is tried out, and one that refuses is wrong, without its secret", async () => {
  const s3 = startS3Server();
  const settings = { ...sound, ...s3Environment(s3) };
  const { checks } = await diagnose(settings);
  expect(checks).toContainEqual({
    name: "file storage",
    state: "ok",
    detail: "bucket stored-files stores, returns and deletes objects",
  });
  expect(s3.bucket.objects.size).toBe(0);
  const { wrongs } = await diagnose({ ...settings, S3_SECRET_ACCESS_KEY: "another" });
  expect(wrongs.map(({ name }) => name)).toEqual(["file storage"]);
  expect(wrongs[0]!.detail).toContain("SignatureDoesNotMatch");
  await s3.stop();
});

describe.skipIf(redisBinary === null)("a Redis that answers", () => {
  let redis: RedisServer;
  let url: string;
  beforeAll(async () => {
    redis = await RedisServer.start(redisBinary!);
    url = redis.url;
  });
  afterAll(() => redis.kill());
  const findings = async (redisUrl = url) => {
    const { checks } = await diagnose({ ...sound, REDIS_URL: redisUrl });
    return checks.filter(({ name }) => name === "redis");
  };

  test("is named with its version", async () => {
    expect(await findings()).toEqual([
      { name: "redis", state: "ok", detail: expect.stringMatching(/Redis \d+\./) },
    ]);
  });

  test("is wrong where it has no database of that number", async () => {
    const [wrong] = await findings(`${url}/99999`);
    expect(wrong).toMatchObject({ state: "wrong", detail: expect.stringContaining("DB index") });
  });

  test("is a warning where it evicts, and wrong where it is a replica", async () => {
    const client = new Redis(url);
    await client.config("SET", "maxmemory", "100mb");
    expect(await findings()).toHaveLength(1);
    await client.config("SET", "maxmemory-policy", "allkeys-lru");
    const [, warning] = await findings();
    expect(warning).toMatchObject({ state: "warning" });
    expect(warning!.detail).toContain("noeviction");
    await client.replicaof("127.0.0.1", 1);
    const [wrong] = await findings();
    expect(wrong).toMatchObject({ state: "wrong", detail: expect.stringContaining("replica") });
    client.disconnect();
  });
});

test("a data folder that is a file, or stands on one, is wrong", async () => {
  const file = join(folder, "file");
  writeFileSync(file, "");
  for (const path of [file, join(file, "data")]) {
    const { wrongs } = await diagnose({ ...sound, DATA_DIR: path });
    expect(wrongs.map(({ name }) => name)).toEqual(["data folder"]);
  }
});

test("a master key of the data folder is wrong when cut, a warning when others can read it", async () => {
  const dataDir = join(folder, "embedded");
  mkdirSync(dataDir);
  const path = join(dataDir, "master-key");
  const { DATABASE_URL: _, GATEWAY_MASTER_KEY: __, ...rest } = sound;
  const settings = { ...rest, DATA_DIR: dataDir };
  writeFileSync(path, "c2hvcnQ=\n", { mode: 0o600 });
  expect((await diagnose(settings)).wrongs.map(({ name }) => name)).toEqual(["master key"]);
  writeFileSync(path, `${MASTER_KEY}\n`);
  expect((await diagnose(settings)).wrongs).toEqual([]);
  chmodSync(path, 0o644);
  const { checks } = await diagnose(settings);
  expect(checks).toContainEqual(expect.objectContaining({ name: "master key", state: "warning" }));
  expect(readdirSync(dataDir)).toEqual(["master-key"]);
});

test("a gateway that runs on the database is told", async () => {
  const gateway = await startTestGateway();
  try {
    const { checks } = await diagnose({ ...sound, DATABASE_URL: gateway.databaseUrl });
    const found = checks.find(({ name }) => name === "gateway");
    expect(found).toEqual({ name: "gateway", state: "ok", detail: "running on this database" });
  } finally {
    await gateway.stop();
  }
});

test("a gateway that was killed a moment ago is not said to run", async () => {
  const sql = connectDatabase(database, { poolSize: 1, applicationName: "test" });
  await sql`INSERT INTO instances (id, epoch, alive, heartbeat_at)
    VALUES ('dead', 1, true, clock_timestamp())`;
  try {
    const { checks, wrongs } = await diagnose(sound);
    expect(wrongs).toEqual([]);
    const found = checks.find(({ name }) => name === "gateway");
    expect(found).toMatchObject({
      state: "warning",
      detail: expect.stringMatching(/^not running; /),
    });
  } finally {
    await sql`DELETE FROM instances WHERE id = 'dead'`;
    await sql.end();
  }
});
