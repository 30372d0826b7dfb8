import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import Type from "typebox";
import { BodyBudget } from "../../src/http/body-budget.ts";
import {
  createReadSemaphore,
  LoadGate,
  MAX_IN_FLIGHT,
  MAX_LAG_MS,
} from "../../src/http/call-bounds.ts";
import { compileRoute, RequestRun } from "../../src/http/pipeline.ts";
import type { Access, RouteDefinition } from "../../src/http/route.ts";
import { receiveUpload } from "../../src/jobs/files/routes.ts";
import { feedResponse } from "../../src/jobs/fine-tuning/routes.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { EventLoopLag } from "../../src/platform/telemetry/process-metrics.ts";
import { expectError } from "../support/error-envelope.ts";

const load = { lagMs: 0 };
const gate = new LoadGate({ lagMs: () => load.lagMs });

function answerOf(
  access: Access,
  handle: RouteDefinition["handle"] = () => new Response("served"),
  connection: string[] = [],
  body = "{}",
) {
  const route = compileRoute(
    {
      method: "POST",
      path: "/v1/test",
      tag: "Test",
      summary: "Test",
      access,
      body: Type.Object({}),
      responses: {},
      handle,
    },
    {
      authentication: {
        authenticate: () => ({
          kind: "secret",
          organizationId: "org",
          scopes: ["chat:completions"],
          ...{ rateLimitRpm: null, rateLimitTpm: null, allowedModels: null, expiresAtMs: null },
          ...{ teamId: null, ownerId: null },
          ...{ dailyBudgetNano: null, monthlyBudgetNano: null },
        }),
      } as never,
      sessions: undefined as never,
      whenAdmitting: () => undefined,
      isTrustedProxy: () => false,
      noteUse() {},
      inFlight: { begin() {}, end() {}, isStopping: false },
      loadGate: gate,
      reads: createReadSemaphore(10),
      admitLongBody: async () => ({}),
      bodies: new BodyBudget(systemClock),
      forms: undefined as never,
      administrativeRate: { count() {} },
      record() {},
      connectionIdleSeconds: 30,
      onInternalError() {},
    },
  );
  const request = new Request("http://localhost/v1/test", {
    method: "POST",
    headers: { "content-type": "application/json", "content-length": String(body.length) },
    body,
  });
  const server = {
    requestIP: () => null,
    timeout: (_: Request, seconds: number) =>
      void connection.push(seconds === 0 ? "may be quiet" : "may expire"),
  };
  return new RequestRun(route, request, {}, server).answer();
}

/** Begins as many calls of an organization as the gate admits, at most so many; returns their number. */
function beginCalls(organizationId: string, most: number): number {
  for (let count = 0; count < most; count++) {
    try {
      gate.begin(organizationId);
    } catch {
      return count;
    }
  }
  return most;
}

function endCalls(organizationId: string, count: number): void {
  for (let ended = 0; ended < count; ended++) gate.end(organizationId);
}

const MODEL = { kind: "model", scope: "chat:completions" } as const;

describe("a gateway with too much to do", () => {
  test("refuses calls of models immediately if too many are running", async () => {
    Object.assign(load, { lagMs: 0 });
    const begun = beginCalls("org", 2 * MAX_IN_FLIGHT);
    const refused = await answerOf(MODEL);
    await expectError(refused, 503, "overloaded");
    expect(refused.headers.get("retry-after")).toBe("1");
    endCalls("org", begun);
    expect((await answerOf(MODEL)).status).toBe(200);
  });

  test("refuses calls of models immediately if its event loop is late all the time", async () => {
    Object.assign(load, { lagMs: MAX_LAG_MS });
    await expectError(await answerOf(MODEL), 503, "overloaded");
    Object.assign(load, { lagMs: MAX_LAG_MS - 1 });
    expect((await answerOf(MODEL)).status).toBe(200);
  });

  test("goes on with administration and with what is public", async () => {
    Object.assign(load, { lagMs: MAX_LAG_MS });
    const begun = beginCalls("org", 2 * MAX_IN_FLIGHT);
    const administration = { kind: "administration", scope: "chat:completions" } as const;
    expect((await answerOf(administration)).status).toBe(200);
    expect((await answerOf({ kind: "public" })).status).toBe(200);
    endCalls("org", begun);
  });

  test("still serves an organization that calls little while others hold all that they can", async () => {
    Object.assign(load, { lagMs: 0 });
    const others = ["a", "b", "c"].map((name) => [name, beginCalls(name, MAX_IN_FLIGHT)] as const);
    // One alone uses nearly all.
    expect(others[0]![1]).toBeGreaterThan(0.85 * MAX_IN_FLIGHT);
    const begun = beginCalls("org", 10);
    expect(begun).toBe(10);
    for (const [name, count] of others) endCalls(name, count);
    endCalls("org", begun);
  });

  test("refuses the organizations with the most calls if its event loop is late, and serves the others", async () => {
    Object.assign(load, { lagMs: 0 });
    beginCalls("greedy", 100);
    Object.assign(load, { lagMs: MAX_LAG_MS });
    expect(beginCalls("greedy", 1)).toBe(0);
    expect((await answerOf(MODEL)).status).toBe(200);
    endCalls("greedy", 100);
  });
});

test("the connection of a stream may be quiet while that runs, and no longer", async () => {
  Object.assign(load, { lagMs: 0 });
  const connection: string[] = [];
  let end: (() => void) | undefined;
  await answerOf(
    { kind: "model", scope: "chat:completions" },
    (context) => {
      context.lifetime.isDeferred = true;
      end = () => context.lifetime.finish?.();
      context.keepOpen();
      return new Response("begun");
    },
    connection,
  );
  expect(connection).toEqual(["may be quiet"]);
  end!();
  expect(connection).toEqual(["may be quiet", "may expire"]);
});

test("the connection of a long body may be quiet until the answer, and no longer", async () => {
  Object.assign(load, { lagMs: 0 });
  const connection: string[] = [];
  const handle = () => {
    connection.push("handled");
    return new Response("served");
  };
  const access = { kind: "model", scope: "chat:completions" } as const;
  expect((await answerOf(access, handle, connection)).status).toBe(200);
  expect(connection.splice(0)).toEqual(["handled"]);
  const long = `{${" ".repeat(100_000)}}`;
  expect((await answerOf(access, handle, connection, long)).status).toBe(200);
  expect(connection.splice(0)).toEqual(["may be quiet", "handled", "may expire"]);
  expect((await answerOf(access, handle, connection, long.slice(1))).status).toBe(400);
  expect(connection).toEqual(["may be quiet", "may expire"]);
});

test("the connection of an upload may be quiet while that comes, and no longer, whatever becomes of it", async () => {
  Object.assign(load, { lagMs: 0 });
  const form = new FormData();
  const outcomes = [
    async () => ({ id: "file_1" }),
    async () => {
      throw new GatewayError("database_unavailable", "The database does not answer.");
    },
  ];
  for (const run of outcomes) {
    const connection: string[] = [];
    await answerOf(
      { kind: "public" },
      async (context) => {
        const { headers } = new Request("http://localhost", { method: "POST", body: form });
        const caller = { key: {} };
        const arrived = {
          ...context,
          request: { headers },
          caller,
          keepOpen: () => context.keepOpen(),
        };
        await receiveUpload(arrived as never, { run } as never, {} as never);
        return new Response("stored");
      },
      connection,
    );
    expect(connection).toEqual(["may be quiet", "may expire"]);
  }
});

test("the connection of a job's events may be quiet while they come, and no longer", async () => {
  const connection: string[] = [];
  const feed = async function* () {
    yield { kind: "quiet" } as const;
    connection.push("quiet");
    yield { kind: "done" } as const;
  };
  const told = await feedResponse(feed(), () => void connection.push("may expire")).text();
  expect(told).toEndWith("data: [DONE]\n\n");
  expect(connection).toEqual(["quiet", "may expire"]);
});

describe("the lag of the event loop", () => {
  let lag: EventLoopLag;
  let nowMs = 0;
  beforeAll(() => {
    lag = new EventLoopLag(() => nowMs);
    lag.stop();
  });
  afterAll(() => lag.stop());
  const tickAfter = (ms: number) => {
    nowMs += ms;
    lag.tick(nowMs);
  };

  test("is what every one of the last ticks had at least, so that one long pause is none", () => {
    tickAfter(5_000);
    expect(lag.lagMs).toBe(0);
    for (let tick = 0; tick < 5; tick++) tickAfter(100);
    expect(lag.lagMs).toBe(0);
    for (let tick = 0; tick < 5; tick++) tickAfter(350 + tick);
    expect(lag.lagMs).toBe(250);
    tickAfter(100);
    expect(lag.lagMs).toBe(0);
  });

  test("is measured only while it is read", () => {
    const read = new EventLoopLag(() => nowMs);
    const tick = (count: number, ms: number) => {
      for (let done = 0; done < count; done++) {
        nowMs += ms;
        read.tick(nowMs);
      }
    };
    tick(99, 100);
    expect(read.lagMs).toBe(0);
    tick(99, 400);
    expect(read.isMeasuring).toBe(true);
    tick(1, 400);
    expect(read.isMeasuring).toBe(false);
    nowMs += 60_000;
    expect(read.lagMs).toBe(0);
    expect(read.isMeasuring).toBe(true);
    tick(5, 350);
    expect(read.lagMs).toBe(250);
    read.stop();
  });
});
