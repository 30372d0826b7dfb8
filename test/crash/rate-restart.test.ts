import { afterAll, beforeAll, expect, test } from "bun:test";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { firstKeys, type GatewayProcess, Grounds } from "./gateway-process.ts";

/*
 * The rate windows of a single-node gateway live in its memory. Killed and started again, it goes on from
 * what the ledger says of the last minute.
 */

const LIMIT = 12;
const TOKEN_LIMIT = 100_000;
const TIMEOUT_MS = 90_000;

const grounds = new Grounds("rate-restart");
const dataDir = grounds.newDataDir();
let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(async () => {
  await grounds.clear();
  await database.drop();
});

function launch(): GatewayProcess {
  const GATEWAY_MASTER_KEY = Buffer.alloc(32, 7).toString("base64");
  return grounds.launch({
    dataDir,
    environment: { DATABASE_URL: database.url, GATEWAY_MASTER_KEY },
  });
}

async function kill(gateway: GatewayProcess): Promise<void> {
  gateway.signal("SIGKILL");
  await gateway.exited;
}

function chat(baseUrl: string, key: string, body: object = {}): Promise<Response> {
  return fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "sandbox/chat",
      messages: [{ role: "user", content: "hi" }],
      ...body,
    }),
  });
}

/** Sends requests one after the other; returns how many of them were admitted. */
async function admissions(baseUrl: string, key: string, requests: number): Promise<number> {
  let admitted = 0;
  for (let i = 0; i < requests; i++) {
    const response = await chat(baseUrl, key);
    await response.text();
    expect(response.status).toBeOneOf([200, 429]);
    if (response.status === 200) admitted++;
  }
  return admitted;
}

test(
  "a key that is used up to its limit over restarts of a killed gateway is admitted no more often than it",
  async () => {
    const beganMs = performance.now();
    let gateway = launch();
    let baseUrl = await gateway.listening;
    const { management_key } = firstKeys(dataDir);
    const created = await fetch(`${baseUrl}/v1/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${management_key}`, "content-type": "application/json" },
      body: JSON.stringify({
        name: "limited",
        rate_limit_rpm: LIMIT,
        rate_limit_tpm: TOKEN_LIMIT,
      }),
    });
    const { key } = (await created.json()) as { key: string };
    // On a busy machine the database of a gateway that has just started may be late: that is 503.
    const tokensLeft = () =>
      until("the gateway answers", async () => {
        const headers = { authorization: `Bearer ${key}` };
        const own = await fetch(`${baseUrl}/v1/key`, { headers });
        const { remaining_tpm } = (await own.json()) as { remaining_tpm?: number };
        return remaining_tpm;
      });
    let admitted = await admissions(baseUrl, key, 4);
    const leftBefore = await tokensLeft();
    expect(leftBefore).toBeLessThan(TOKEN_LIMIT);

    // Of a stream under way the process leaves its last checkpoint.
    const stream = await chat(baseUrl, key, { model: "sandbox/slow", stream: true });
    expect(stream.status).toBe(200);
    await stream.body!.getReader().read();
    admitted++;
    await kill(gateway);

    gateway = launch();
    baseUrl = await gateway.listening;
    const leftAfter = await tokensLeft();
    expect(leftAfter).toBeWithin(leftBefore - 2_000, leftBefore);
    const first = await chat(baseUrl, key);
    expect(first.headers.get("x-ratelimit-remaining")).toBe(String(LIMIT - admitted - 1));
    await first.text();
    admitted += 1 + (await admissions(baseUrl, key, 3));
    await kill(gateway);

    gateway = launch();
    baseUrl = await gateway.listening;
    admitted += await admissions(baseUrl, key, LIMIT);
    // Else the first admissions have left the window, and nothing was shown.
    expect(performance.now() - beganMs).toBeLessThan(58_000);
    expect(admitted).toBe(LIMIT);
    await kill(gateway);
  },
  TIMEOUT_MS,
);
