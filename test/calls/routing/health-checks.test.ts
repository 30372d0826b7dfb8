import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { noteHealthy, noteUnhealthy } from "../../../db/queries/provider-health.ts";
import { HealthChecks } from "../../../src/inference/call/routing/health-checks.ts";
import { type Clock, VirtualClock } from "../../../src/lib/clock.ts";
import { endpointUnhealthy } from "../../../src/lib/events/endpoint-unhealthy.ts";
import { newId } from "../../../src/lib/ids.ts";
import { ProviderFailure } from "../../../src/providers/interface.ts";
import { payloadFaults } from "../../support/event-payload.ts";
import { startTestGateway, type TestGateway } from "../../support/gateway.ts";
import { until } from "../../support/until.ts";
import { startUpstream, type Upstream } from "../../upstream/server.ts";

const MODEL = { category: "chat", context_length: 8_192, max_output_tokens: 1_024 };

let gateway: TestGateway;
let first: Upstream;
let second: Upstream;

beforeAll(async () => {
  [first, second] = [await startUpstream(), await startUpstream()];
  const local = (id: string, { baseUrl }: Upstream) => ({
    id,
    type: "openai-compatible",
    base_url: baseUrl,
  });
  gateway = await startTestGateway({
    environment: {
      GATEWAY_HEALTH_CHECK_SECONDS: "1",
      GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
      GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
    },
    configuration: {
      providers: [local("one", first), local("two", second)],
      models: [
        {
          id: "test/m",
          ...MODEL,
          endpoints: ["one", "two"].map((provider) => ({ provider, model: "m" })),
        },
      ],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await second.stop();
});

const chat = () =>
  gateway.request("POST", "/v1/chat/completions", {
    model: "test/m",
    messages: [{ role: "user", content: "hello" }],
    route_explain: true,
  });

const events = (organizationId: string) => gateway.sql`
  SELECT data FROM outbox WHERE type = 'endpoint.unhealthy' AND organization_id = ${organizationId}`;

async function subscribe(key: string): Promise<void> {
  const body = { url: "http://127.0.0.1:1/hook", events: ["endpoint.unhealthy"] };
  expect((await gateway.request("POST", "/v1/webhooks", body, { key })).status).toBe(201);
}

test("a self-hosted server that is down is tried last, and one event reports it to those who asked", async () => {
  const silent = await gateway.addOrganization();
  await subscribe(gateway.managementKey);
  expect((await chat()).headers.get("x-gateway-provider")).toBe("one");
  const { port } = first;
  await first.stop();
  await until(
    "the event is emitted",
    async () => (await events(gateway.organizationId)).length > 0,
    15_000,
  );
  const response = await chat();
  expect(response.headers.get("x-gateway-provider")).toBe("two");
  expect(response.headers.get("x-gateway-route-explain")).toBe(
    "planned: one/m, two/m; tried: two/m=ok; unhealthy: one/m; not needed: one/m",
  );
  first = await startUpstream({ port });
  await until(
    "it is tried first again",
    async () => (await chat()).headers.get("x-gateway-provider") === "one",
    15_000,
  );
  const emitted = await events(gateway.organizationId);
  expect(emitted.map(({ data }) => data)).toEqual([{ endpoint: "one", provider: "one" }]);
  expect(payloadFaults("endpoint.unhealthy", emitted[0]!.data)).toEqual([]);
  expect(await events(silent.organization.id)).toHaveLength(0);
  await first.stop();
}, 60_000);

test("the list of a server that comes back is read again", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-lists-"));
  const listed = new Set(["early"]);
  const serve = (port: number) =>
    Bun.serve({
      port,
      hostname: "127.0.0.1",
      fetch: () => Response.json({ data: [...listed].map((id) => ({ id })) }),
    });
  let server = serve(0);
  const { port } = server;
  const own = await startTestGateway({
    environment: {
      DATA_DIR: folder,
      GATEWAY_HEALTH_CHECK_SECONDS: "1",
      GATEWAY_MODEL_LISTS_SECONDS: "3600",
    },
    configuration: {
      providers: [
        { id: "local", type: "openai-compatible", base_url: `http://127.0.0.1:${port}/v1` },
      ],
    },
  });
  try {
    const lists = async (id: string) =>
      (await own.request("GET", `/v1/models/${id}`)).status === 200;
    await until("its models are known", () => lists("local/early"), 15_000);
    await server.stop(true);
    // Longer than two checks, of which at least one fails.
    let failed = 0;
    const away = Bun.serve({
      port: port!,
      hostname: "127.0.0.1",
      fetch() {
        failed++;
        return new Response(null, { status: 503 });
      },
    });
    await until("a check has failed", () => failed > 1, 15_000);
    await away.stop(true);
    listed.add("late");
    server = serve(port!);
    await until("its new model is known", () => lists("local/late"), 15_000);
  } finally {
    await own.stop();
    await server.stop(true);
    rmSync(folder, { recursive: true });
  }
}, 60_000);

test("nothing is written in a round that finds nothing new", async () => {
  const time = new VirtualClock();
  let rounds = 0;
  // The next round is set when one has ended.
  const clock: Clock = {
    nowMs: () => time.nowMs(),
    after(delayMs, run) {
      rounds++;
      return time.after(delayMs, run);
    },
  };
  let statements = 0;
  const recovered: string[] = [];
  const background = new Proxy(gateway.sql, {
    apply(sql, self, args) {
      statements++;
      return Reflect.apply(sql, self, args);
    },
    get(sql, name) {
      if (name === "begin") statements++;
      return Reflect.get(sql, name);
    },
  });
  let isUp = true;
  const checkKey = async () => {
    if (!isUp) throw new ProviderFailure("unavailable", "down");
  };
  const faults: unknown[] = [];
  const checks = new HealthChecks({
    providers: () => new Map([["four", { checkKey }]]),
    ...{ background, clock, intervalMs: 10_000, isReporter: () => true },
    onRecovered: (id) => recovered.push(id),
    onError: (error) => faults.push(error),
  });
  const check = async (times: number) => {
    for (let at = 0; at < times; at++) {
      const before = rounds;
      time.advance(10_000);
      await until("the end of the round", () => rounds > before);
    }
  };
  checks.start();
  await check(5);
  expect(statements).toBe(1);
  isUp = false;
  await check(5);
  expect(statements).toBe(2);
  isUp = true;
  await check(7);
  // The last one because a minute has passed.
  expect(statements).toBe(4);
  expect(recovered).toEqual(["four"]);
  checks.stop();
  expect(faults).toEqual([]);
});

test("instances that find it out at the same time report it once, and again after it was healthy", async () => {
  const { organization, managementKey } = await gateway.addOrganization();
  await subscribe(managementKey);
  const note = () =>
    noteUnhealthy(gateway.sql, "three", endpointUnhealthy.type, (organizationId) =>
      endpointUnhealthy.build(newId("evt"), organizationId, {
        endpoint: "three",
        provider: "three",
      }),
    );
  await Promise.all([note(), note(), note()]);
  expect(await events(organization.id)).toHaveLength(1);
  await noteHealthy(gateway.sql, "three");
  await note();
  expect(await events(organization.id)).toHaveLength(2);
});
