import { afterAll, expect, test } from "bun:test";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase } from "../support/database.ts";
import { findTestRedis } from "../support/redis.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { until } from "../support/until.ts";
import { exitOf, type GatewayProcess, Grounds } from "./gateway-process.ts";

/*
 * A database to which each connection takes seconds, as after a failover, with a serverless Postgres that
 * starts, or far away: it is slow to connect to, and fast to answer.
 */

const TIMEOUT_MS = 120_000;
/*
 * Half a second is usual after a cut, and a second at the start of one instance. The rest is for the machine:
 * starts that share a processor, beyond their waiting for it. The connections of a start, opened one after the
 * other, would take six times as long as one; a cut that is answered by new tries would never end.
 */
const STARTED_WITHIN_MS = 6_000;
const SERVES_WITHIN_MS = 4_000;
const READY_TIMEOUT_MS = 60_000;
const CHATS_AFTERWARDS = 20;

const grounds = new Grounds("slow-connections");
afterAll(() => grounds.clear());

interface Instance {
  readonly gateway: GatewayProcess;
  readonly network: CuttingProxy;
}

async function chat(baseUrl: string, key: string): Promise<number> {
  const response = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "sandbox/chat",
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  await response.text();
  return response.status;
}

/**
 * Milliseconds from the first connection to the first answer that comes after it, without those in which the
 * gateway waited for a processor.
 */
async function serviceAfterFirstConnection(
  { gateway, network }: Instance,
  key: string,
): Promise<number> {
  await until("a connection stands", () => network.firstReadyAtMs !== undefined, READY_TIMEOUT_MS);
  const elapsedMs = startStopwatch(gateway.pid);
  const baseUrl = await gateway.listening;
  return until(
    "a chat is answered over a new connection",
    async () => {
      return (await chat(baseUrl, key)) === 200 ? elapsedMs() : undefined;
    },
    READY_TIMEOUT_MS,
  );
}

const redis = await findTestRedis();
for (const count of [1, 3]) {
  for (const [seconds, place] of [
    [2, "the server"],
    [5, "the network"],
  ] as const) {
    test.skipIf(count > 1 && redis === undefined)(
      `${count === 1 ? "one instance serves" : "three instances serve"} as soon as connections stand that take ${place} ${seconds} s each, at the start and after a cut, and go on serving`,
      async () => {
        const database = await createTestDatabase();
        const url = new URL(database.url);
        // A setting of developers: the server sleeps in each new session (PostgreSQL documentation, 20.17).
        if (place === "the server") url.searchParams.set("post_auth_delay", String(seconds));
        const key = generateApiKey("secret").key;
        const instances = await Promise.all(
          Array.from({ length: count }, async (): Promise<Instance> => {
            const network = await startCuttingProxy(url.href);
            if (place === "the network") network.delayConnections(seconds * 1_000);
            const gateway = grounds.launch({
              dataDir: grounds.newDataDir(),
              environment: {
                DATABASE_URL: network.url,
                DATABASE_POOL_SIZE: "3",
                GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
                GATEWAY_SECRET_KEY: key,
                ...(count > 1 && { REDIS_URL: redis!.url }),
              },
            });
            return { gateway, network };
          }),
        );
        const measure = () =>
          Promise.all(instances.map((one) => serviceAfterFirstConnection(one, key)));
        const tookMs = { start: await measure(), cut: [] as number[] };
        for (const { network } of instances) {
          network.breakDown();
          network.restore();
        }
        tookMs.cut = await measure();
        console.log(`${count} × ${seconds} s by ${place}: ${JSON.stringify(tookMs)}`);
        for (const took of tookMs.start) expect(took).toBeLessThan(STARTED_WITHIN_MS);
        for (const took of tookMs.cut) expect(took).toBeLessThan(SERVES_WITHIN_MS);
        for (const { gateway } of instances) {
          const baseUrl = await gateway.listening;
          for (let n = 0; n < CHATS_AFTERWARDS; n++) expect(await chat(baseUrl, key)).toBe(200);
          expect((await fetch(`${baseUrl}/readyz`)).status).toBe(200);
          expect(gateway.stdout()).not.toContain("replaced silent connections");
        }
        for (const { gateway } of instances) gateway.signal("SIGTERM");
        for (const { gateway } of instances) expect(await exitOf(gateway)).toBe(0);
        for (const { network } of instances) await network.stop();
        await database.drop();
      },
      TIMEOUT_MS,
    );
  }
}
