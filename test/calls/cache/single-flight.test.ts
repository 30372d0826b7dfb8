import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { claimFlight, endFlight } from "../../../db/queries/response-cache.ts";
import { type ChatGateway, startChatGateway } from "../../support/chat-gateway.ts";
import { expectError } from "../../support/error-envelope.ts";
import { expectBooksClosed } from "../../support/ledger-checks.ts";
import { readStream } from "../../support/stream-reader.ts";
import { until } from "../../support/until.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(async () => {
  await expectBooksClosed(gateway);
  await until("no flight is left", async () => (await flights()) === 0);
});

const TOGETHER = { "x-gateway-cache": "on", "x-gateway-cache-single-flight": "on" };
const callsOf = (slug: string) => gateway.upstream.servedOf(slug).length;
const ask = (slug: string, body = {}, init: RequestInit = {}) =>
  gateway.chat(slug, body, { headers: TOGETHER, ...init });
const outcomeOf = (response: Response) => response.headers.get("x-gateway-cache");

async function flights(): Promise<number> {
  const [row] = await gateway.sql`SELECT count(*)::int AS flights FROM answer_flights`;
  return row!.flights;
}

async function billed(slug: string) {
  const [row] = await gateway.sql`
    SELECT count(*)::int AS calls, count(*) FILTER (WHERE amount_nano <> 0)::int AS charged
    FROM transactions WHERE model = ${`test/${slug}`}`;
  return row;
}

describe("equal requests at once", () => {
  test("are one upstream call and the bill of one, whole and streamed", async () => {
    const slug = gateway.modelThat({ do: "complete", content: "one for all", firstDelayMs: 200 });
    const asked = Array.from({ length: 100 }, (_, n) => ask(slug, { stream: n % 2 === 1 }));
    const responses = await Promise.all(asked);
    const outcomes = responses.map(outcomeOf);
    expect(outcomes.filter((outcome) => outcome === "miss").length).toBe(1);
    expect(outcomes.filter((outcome) => outcome === "hit").length).toBe(99);
    for (const [n, response] of responses.entries()) {
      if (n % 2 === 1) expect((await readStream(response)).content).toBe("one for all");
      else expect((await response.json()).choices[0].message.content).toBe("one for all");
    }
    expect(callsOf(slug)).toBe(1);
    expect(await billed(slug)).toEqual({ calls: 100, charged: 1 });
  });

  test("that do not ask for one flight each call their provider", async () => {
    const slug = gateway.modelThat({ do: "complete", firstDelayMs: 200 });
    const headers = { "x-gateway-cache": "on" };
    await Promise.all(
      Array.from({ length: 3 }, async () => (await ask(slug, {}, { headers })).text()),
    );
    expect(callsOf(slug)).toBe(3);
  });

  test("go on with the next one where the first fails", async () => {
    const slug = gateway.modelThat(
      { do: "error", status: 400, firstDelayMs: 200 },
      { do: "complete", firstDelayMs: 100 },
    );
    const responses = await Promise.all(Array.from({ length: 5 }, () => ask(slug)));
    expect(responses.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 400]);
    expect(callsOf(slug)).toBe(2);
    for (const response of responses) await response.text();
  });

  test.each([[{}], [{ stream: true }]])(
    "%j: go on with the next one where the client of the first leaves",
    async (body) => {
      const slug = gateway.modelThat(
        { do: "stall-after-events", afterEvents: 2 },
        { do: "complete" },
      );
      const leaving = new AbortController();
      const first = ask(slug, body, { signal: leaving.signal });
      first.then((response) => response.text()).catch(() => {});
      await until("the provider is asked", () => callsOf(slug) === 1);
      const others = Array.from({ length: 3 }, () => ask(slug));
      await until("they have come", async () => (await flights()) === 1);
      leaving.abort();
      const outcomes = (await Promise.all(others)).map(outcomeOf);
      expect(outcomes.sort()).toEqual(["hit", "hit", "miss"]);
      expect(callsOf(slug)).toBe(2);
    },
  );

  test("are not disturbed by one that waits and leaves", async () => {
    const slug = gateway.modelThat({ do: "complete", firstDelayMs: 500 });
    const first = ask(slug);
    await until("the provider is asked", () => callsOf(slug) === 1);
    const leaving = new AbortController();
    const left = ask(slug, {}, { signal: leaving.signal });
    const stays = ask(slug);
    await Bun.sleep(50);
    leaving.abort();
    await expect(left).rejects.toThrow();
    expect(outcomeOf(await first)).toBe("miss");
    expect(outcomeOf(await stays)).toBe("hit");
    expect(callsOf(slug)).toBe(1);
  });

  test("of a key that was revoked while it waited are refused", async () => {
    const slug = gateway.modelThat({ do: "complete", firstDelayMs: 2_000 });
    const created = await gateway.request(
      "POST",
      "/v1/keys",
      { name: `k ${crypto.randomUUID()}`, scopes: ["chat:completions"] },
      { key: gateway.managementKey },
    );
    const { id, key } = (await created.json()) as { id: string; key: string };
    const first = ask(slug);
    await until("the provider is asked", () => callsOf(slug) === 1);
    const waits = gateway.chat(slug, {}, { headers: TOGETHER, key });
    await Bun.sleep(100);
    await gateway.request("DELETE", `/v1/keys/${id}`, undefined, { key: gateway.managementKey });
    expect((await first).status).toBe(200);
    await expectError(await waits, 401, "invalid_api_key");
  });
});

test("a request waits for one of another instance, and goes on when that has ended", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const { headers } = await ask(slug);
  const place = {
    organizationId: gateway.organizationId,
    keyHash: headers.get("x-gateway-cache-key")!,
  };
  await gateway.request("DELETE", "/v1/cache", undefined, { key: gateway.managementKey });
  expect(await claimFlight(gateway.sql, place, "req_elsewhere")).toBeTrue();
  expect(await claimFlight(gateway.sql, place, "req_third")).toBeFalse();
  const waiting = ask(slug);
  expect(await Promise.race([waiting, Bun.sleep(300).then(() => "waits")])).toBe("waits");
  expect(callsOf(slug)).toBe(1);
  await endFlight(gateway.sql, place, "req_elsewhere");
  expect(outcomeOf(await waiting)).toBe("miss");
  expect(callsOf(slug)).toBe(2);
});

test("what an instance left that died is passed over when its lease has ended", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const { headers } = await ask(slug);
  const place = {
    organizationId: gateway.organizationId,
    keyHash: headers.get("x-gateway-cache-key")!,
  };
  await gateway.request("DELETE", "/v1/cache", undefined, { key: gateway.managementKey });
  await claimFlight(gateway.sql, place, "req_dead");
  await gateway.sql`UPDATE answer_flights SET lease_until = clock_timestamp() - interval '1 second'`;
  expect(outcomeOf(await ask(slug))).toBe("miss");
});
