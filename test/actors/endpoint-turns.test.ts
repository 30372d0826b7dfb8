import { expect, test } from "bun:test";
import { endpointActor } from "../../actors/endpoint/actor.ts";
import { turnContextOf } from "../../actors/runtime/definition.ts";
import { ActorRegistry } from "../../actors/runtime/registry.ts";
import { VirtualClock } from "../../src/lib/clock.ts";

test("what an endpoint is told shows in its next turn, whether it is told at once or asked", async () => {
  const clock = new VirtualClock();
  const endpoints = new ActorRegistry(endpointActor, {
    clock,
    context: turnContextOf(clock, () => 0),
    commit: () => Promise.reject(new Error("writes nothing")),
    read: () => Promise.reject(new Error("reads nothing")),
  });
  const endpoint = endpoints.get("a/b");
  expect(await endpoint.ask("begin", undefined)).toBeUndefined();
  expect(endpoint.turn("begin", undefined)).toBeUndefined();
  expect(endpoint.mayPassivate).toBeFalse();
  endpoint.turn("succeed", { totalMs: 40, answeredMs: 10, outputTokens: 8 });
  expect(await endpoint.ask("health", undefined)).toEqual({
    circuit: "closed",
    latencyMs: 40,
    answeredMs: 10,
    tokensPerSecond: 200,
    running: 1,
    openings: 0,
    lastFailure: undefined,
  });
  endpoint.turn("fail", { kind: "rate_limited", status: 429, retryAfterMs: 1_000 });
  expect(endpoint.turn("health", undefined).circuit).toBe("open");
  expect(endpoint.mayPassivate).toBeTrue();
  expect(endpoints.get("a/c").isActive).toBeFalse();
  expect(await endpoints.get("a/c").ask("health", undefined)).toMatchObject({ latencyMs: 0 });
});
