import { afterAll, beforeAll, expect, test } from "bun:test";
import { systemClock } from "../../src/lib/clock.ts";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";

/** Far above the timeouts below, and far below those that hold unless told otherwise. */
const STILL_OPEN_MS = 15_000;
const HOUR_MS = 3_600_000;

let gateway: ChatGateway;
let setBackMs = 0;
beforeAll(async () => {
  gateway = await startChatGateway({
    clock: { nowMs: () => Date.now() - setBackMs, after: systemClock.after },
    environment: {
      GATEWAY_KEEPALIVE_MS: "200",
      GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS: "2500",
      GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS: "2000",
      GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS: "2000",
    },
  });
});
afterAll(() => gateway.stop());

const orStillOpen = (text: Promise<string>) =>
  Promise.race([text, Bun.sleep(STILL_OPEN_MS).then(() => "still open")]);

async function whileNoCheckpointIsTaken(work: () => Promise<void>): Promise<void> {
  const locked = Promise.withResolvers<void>();
  const done = Promise.withResolvers<void>();
  const lock = gateway.sql.begin(async (sql) => {
    await sql`LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE`;
    locked.resolve();
    await done.promise;
  });
  await locked.promise;
  try {
    await work();
  } finally {
    done.resolve();
    await lock;
  }
}

test("a stream whose first checkpoint the database does not take ends in its time, and costs nothing", async () => {
  const slug = gateway.modelThat({ do: "stall-after-events", content: "a b c d", afterEvents: 3 });
  let response: Response | undefined;
  await whileNoCheckpointIsTaken(async () => {
    response = await gateway.chat(slug, { stream: true });
    const text = await orStillOpen(response.text());
    expect(text).toContain("provider_timeout");
    expect(text).not.toContain('"content"');
  });
  await until("its hold has ended", async () => {
    const rows = await gateway.sql`SELECT 1 FROM attempts`;
    return rows.length === 0;
  });
  await expectBooksClosed(gateway);
  expect((await billOfResponse(gateway, response!)).chargeNano).toBe(0n);
}, 60_000);

test("a stream keeps its keepalives and its timeouts although the clock is set back", async () => {
  const slug = gateway.modelThat({ do: "stall-after-events", content: "a b c d", afterEvents: 2 });
  const response = await gateway.request(
    "POST",
    "/v1/chat/completions",
    chatBody(slug, { stream: true }),
  );
  setBackMs = HOUR_MS;
  const text = await orStillOpen(response.text());
  expect(text).toContain("provider_timeout");
  expect(text.split(": keepalive").length).toBeGreaterThan(2);
  expect((await billOfResponse(gateway, response)).completionTokens).toBeGreaterThan(0);
  await expectBooksClosed(gateway);
}, 60_000);
