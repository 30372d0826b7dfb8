import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { version } from "../../package.json";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import {
  exitOf,
  firstKeys,
  type GatewayProcess,
  Grounds,
  type LaunchOptions,
} from "../crash/gateway-process.ts";
import { programFile } from "../support/programs.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { until } from "../support/until.ts";
import { chat, getJson } from "./client.ts";

const TIMEOUT_MS = 60_000;
/** From the command to the first request that is answered. */
const FIRST_START_MS = 10_000;
const LATER_START_MS = 2_000;
const OPERATOR_LINK = /\/dashboard\/welcome#[\w-]{43}/;
const KEY = new RegExp(`gateway_(sk|mgmt)_[0-9A-Za-z]{38}|${OPERATOR_LINK.source}`);

const grounds = new Grounds("start");
afterAll(() => grounds.clear());

/** Starts a gateway and measures until it is ready, without its waiting for a processor. */
async function startReady(options: LaunchOptions) {
  const gateway = grounds.launch(options);
  const elapsedMs = startStopwatch(gateway.pid);
  const baseUrl = await gateway.listening;
  await until("it is ready", async () => (await fetch(`${baseUrl}/readyz`)).status === 200);
  return { gateway, baseUrl, startMs: elapsedMs() };
}

async function stop(gateway: GatewayProcess): Promise<void> {
  gateway.signal("SIGTERM");
  expect(await exitOf(gateway)).toBe(0);
}

describe("the first start in an empty folder, without a terminal", () => {
  test(
    "is ready in time, leaves working keys in a file for its owner alone, and later starts are fast and silent",
    async () => {
      const dataDir = grounds.newDataDir();
      const first = await startReady({ dataDir, fromSource: true });
      expect(first.startMs).toBeLessThan(FIRST_START_MS);
      const path = join(dataDir, "first-keys.json");
      expect(statSync(path).mode & 0o777).toBe(0o600);
      const keys = firstKeys(dataDir);
      expect(keys).toEqual({
        base_url: first.baseUrl,
        management_key: expect.stringMatching(/^gateway_mgmt_[0-9A-Za-z]{38}$/),
        operator_url: expect.stringMatching(OPERATOR_LINK),
        secret_key: expect.stringMatching(/^gateway_sk_[0-9A-Za-z]{38}$/),
      });
      expect(first.gateway.stdout()).toContain(path);
      expect(first.gateway.stdout() + first.gateway.stderr()).not.toMatch(KEY);
      expect(await chat(first.baseUrl, keys.secret_key)).toMatchObject({
        status: 200,
        body: { object: "chat.completion", usage: { cost: expect.any(Number) } },
      });
      expect(await getJson(first.baseUrl, "/v1/keys", keys.management_key)).toMatchObject({
        status: 200,
        body: { total: 2 },
      });
      await stop(first.gateway);
      rmSync(path);

      const laterMs: number[] = [];
      for (let time = 2; time <= 3; time++) {
        const later = await startReady({ dataDir, fromSource: true });
        laterMs.push(later.startMs);
        expect(existsSync(path)).toBeFalse();
        expect(later.gateway.stdout()).not.toContain("first keys");
        expect(later.gateway.stdout() + later.gateway.stderr()).not.toMatch(KEY);
        expect((await chat(later.baseUrl, keys.secret_key)).status).toBe(200);
        const credits = await getJson(later.baseUrl, "/v1/credits", keys.management_key);
        expect(credits.body.balance_usd).toBeWithin(9.9, 10);
        await stop(later.gateway);
      }
      // What else runs on the machine may slow one of them down.
      expect(Math.min(...laterMs)).toBeLessThan(LATER_START_MS);
    },
    TIMEOUT_MS,
  );

  test(
    "that is killed at any point leaves a folder in which the next one works, with keys that are known",
    async () => {
      const dataDir = grounds.newDataDir();
      for (const delayMs of [60, 300, 700, 1_100]) {
        const early = grounds.launch({ dataDir, fromSource: true });
        await Promise.race([Bun.sleep(delayMs), early.listening.catch(() => {})]);
        early.signal("SIGKILL");
        await early.exited;
      }
      const { gateway, baseUrl } = await startReady({ dataDir });
      const keys = firstKeys(dataDir);
      expect((await chat(baseUrl, keys.secret_key)).status).toBe(200);
      expect((await getJson(baseUrl, "/v1/keys", keys.management_key)).body.total).toBe(2);
      await stop(gateway);
    },
    TIMEOUT_MS,
  );
});

describe("the file of the first keys", () => {
  test(
    "has the address of the start that works, and that says where it is, until it is deleted",
    async () => {
      const dataDir = await grounds.newDataDirWithDatabase();
      const path = join(dataDir, "first-keys.json");
      const earlier = await startReady({ dataDir });
      await stop(earlier.gateway);
      const left = firstKeys(dataDir);
      const { gateway, baseUrl } = await startReady({ dataDir });
      expect(firstKeys(dataDir)).toEqual({
        ...left,
        base_url: baseUrl,
        operator_url: left.operator_url?.replace(earlier.baseUrl, baseUrl),
      });
      expect(gateway.stdout()).toMatch(
        /"Default organization \(org_\w+\): plan free, fee 4 %, credit 10 USD"/,
      );
      expect(statSync(path).mode & 0o777).toBe(0o600);
      expect(gateway.stdout()).toContain(path);
      expect(gateway.stdout() + gateway.stderr()).not.toMatch(KEY);
      expect((await chat(baseUrl, left.secret_key)).status).toBe(200);
      await stop(gateway);
    },
    TIMEOUT_MS,
  );

  test(
    "is left as it is where its keys are not the database's",
    async () => {
      const dataDir = await grounds.newDataDirWithDatabase();
      const path = join(dataDir, "first-keys.json");
      const first = await startReady({ dataDir });
      await stop(first.gateway);
      const another = {
        ...firstKeys(dataDir),
        base_url: "http://127.0.0.1:1",
        secret_key: generateApiKey("secret").key,
      };
      for (const text of [JSON.stringify(another), "no keys", "null"]) {
        writeFileSync(path, text);
        const { gateway } = await startReady({ dataDir });
        expect(readFileSync(path, "utf8")).toBe(text);
        expect(gateway.stdout()).not.toContain("first keys");
        await stop(gateway);
      }
    },
    TIMEOUT_MS,
  );
});

/** Starts a gateway on a terminal, which hands on what is shown there. */
function onTerminal(dataDir: string, port: number, data: (_: unknown, bytes: Uint8Array) => void) {
  return Bun.spawn([process.execPath, "--no-env-file", programFile("gateway")], {
    cwd: grounds.folder,
    env: { PATH: process.env.PATH, PORT: String(port), DATA_DIR: dataDir },
    terminal: { cols: 200, rows: 50, data },
  });
}

/** Runs the command of the banner as printed, and returns its answer. */
async function commandOfBanner(shown: string, secretKey?: string): Promise<object> {
  const command = /Try it in another terminal:\s+((?:export|curl) [\s\S]*? -d '.*')/.exec(
    shown,
  )?.[1];
  const child = Bun.spawn(["sh", "-c", command!.replaceAll("\r", "")], {
    env: { PATH: process.env.PATH, SECRET_KEY: secretKey },
    stdio: ["ignore", "pipe", "ignore"],
  });
  return (await new Response(child.stdout).json()) as object;
}

test(
  "on a terminal the first start shows the addresses, the keys once, and a command that works, and writes no file",
  async () => {
    const dataDir = await grounds.newDataDirWithDatabase();
    let shown = "";
    const show = (_: unknown, bytes: Uint8Array) => {
      shown += Buffer.from(bytes).toString();
    };
    const launchOnTerminal = async () => {
      const child = onTerminal(dataDir, 0, show);
      await until("the gateway listens", () => shown.includes("listening on"), TIMEOUT_MS / 2);
      return child;
    };
    const first = await launchOnTerminal();
    const secretKey = /Secret key +(gateway_sk_\w{38})/.exec(shown)?.[1];
    await until("the banner is shown", () => shown.includes("-d '"));
    const baseUrl = /Base URL +(http:\S+)\/v1\r?\n/.exec(shown)?.[1];
    expect(shown).toContain(`model-gateway ${version}`);
    expect(shown).toMatch(/Management key +gateway_mgmt_\w{38}/);
    expect(shown).toMatch(new RegExp(`${baseUrl}${OPERATOR_LINK.source}`));
    expect(existsSync(join(dataDir, "first-keys.json"))).toBeFalse();
    for (const [label, path] of [
      ["Dashboard", "/dashboard"],
      ["Documentation", "/docs/"],
    ]) {
      const address = new RegExp(`${label} +(http:\\S+)`).exec(shown)?.[1];
      expect(address).toBe(`${baseUrl}${path}`);
      expect((await fetch(address!)).status).toBe(200);
    }
    expect((await chat(baseUrl!, secretKey!)).status).toBe(200);
    expect(await commandOfBanner(shown)).toMatchObject({ object: "chat.completion" });
    await until("the request is logged", () => shown.includes("POST /v1/chat/completions 200"));
    expect(shown).not.toContain('{"level"');
    // Ctrl-C, as a person would end it.
    first.terminal!.write("\x03");
    expect(await first.exited).toBe(0);
    await until("its end is shown", () => / INFO {2}stopped\r?\n/.test(shown));
    expect(shown).toContain("draining: 0 requests running");
    shown = "";
    const second = await launchOnTerminal();
    expect(shown).not.toMatch(KEY);
    await until("the banner is shown", () => shown.includes("-d '"));
    expect(await commandOfBanner(shown, secretKey)).toMatchObject({ object: "chat.completion" });
    second.kill("SIGTERM");
    expect(await second.exited).toBe(0);
  },
  TIMEOUT_MS,
);

test(
  "on a terminal a first start whose port is taken makes no keys, and the next one shows them",
  async () => {
    const dataDir = await grounds.newDataDirWithDatabase();
    const taken = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
    let shown = "";
    const first = onTerminal(dataDir, taken.port!, (_, bytes) => {
      shown += Buffer.from(bytes).toString();
    });
    expect(await first.exited).toBe(1);
    await until("it says why", () => shown.includes("PORT"));
    expect(shown).not.toMatch(KEY);
    const port = taken.port!;
    await taken.stop(true);
    const second = onTerminal(dataDir, port, (_, bytes) => {
      shown += Buffer.from(bytes).toString();
    });
    await until("it listens", () => shown.includes("Base URL"), TIMEOUT_MS / 2);
    const secretKey = /Secret key +(gateway_sk_\w{38})/.exec(shown)?.[1];
    expect((await chat(`http://127.0.0.1:${port}`, secretKey!)).status).toBe(200);
    second.kill("SIGTERM");
    expect(await second.exited).toBe(0);
  },
  TIMEOUT_MS,
);

test(
  "keys, credit and plan given at the first start are the organization's, and change nothing afterwards",
  async () => {
    const dataDir = await grounds.newDataDirWithDatabase();
    const given = { secret: generateApiKey("secret").key, mgmt: generateApiKey("management").key };
    const first = await startReady({
      dataDir,
      environment: {
        GATEWAY_SECRET_KEY: given.secret,
        GATEWAY_MANAGEMENT_KEY: given.mgmt,
        GATEWAY_STARTING_CREDIT_USD: "0",
        GATEWAY_PLAN: "pro",
      },
    });
    expect(firstKeys(dataDir)).toMatchObject({
      secret_key: given.secret,
      management_key: given.mgmt,
    });
    expect(first.gateway.stdout()).toContain("plan pro, fee 2.5 %, credit 0 USD");
    expect((await getJson(first.baseUrl, "/v1/credits", given.mgmt)).body.balance_usd).toBe(0);
    const { body } = await getJson(first.baseUrl, "/v1/credits/transactions", given.mgmt);
    expect(body).toEqual({ data: [], total: 0, has_more: false });
    expect(await chat(first.baseUrl, given.secret)).toMatchObject({
      status: 402,
      body: { error: { code: "insufficient_credits" } },
    });
    await stop(first.gateway);

    const others = {
      secret: generateApiKey("secret").key,
      mgmt: generateApiKey("management").key,
    };
    const second = await startReady({
      dataDir,
      environment: {
        GATEWAY_SECRET_KEY: others.secret,
        GATEWAY_MANAGEMENT_KEY: others.mgmt,
        GATEWAY_STARTING_CREDIT_USD: "5",
      },
    });
    expect((await getJson(second.baseUrl, "/v1/credits", others.mgmt)).status).toBe(401);
    expect((await chat(second.baseUrl, others.secret)).status).toBe(401);
    const credits = await getJson(second.baseUrl, "/v1/credits", given.mgmt);
    expect(credits).toMatchObject({ status: 200, body: { balance_usd: 0 } });
    await stop(second.gateway);
  },
  TIMEOUT_MS,
);
