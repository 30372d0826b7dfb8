import { expect, test } from "bun:test";
import { endpointActor } from "../../actors/endpoint/actor.ts";
import { turnContextOf } from "../../actors/runtime/definition.ts";
import { ActorRegistry } from "../../actors/runtime/registry.ts";
import { Failover } from "../../src/inference/call/routing/failover.ts";
import type { Candidate } from "../../src/inference/call/routing/plan-route.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { CallAbort } from "../../src/providers/transport/call-abort.ts";
import { noLimits } from "../support/no-limits.ts";

const MEASURED_MS = 40;

test.each([
  ["back", -3_600_000],
  ["forth", 3_600_000],
])("how long a call took is measured although the clock is set %s meanwhile", async (_, byMs) => {
  const steadyClock = new VirtualClock();
  let setByMs = 0;
  const clock = {
    nowMs: () => steadyClock.nowMs() + setByMs,
    after: steadyClock.after.bind(steadyClock),
  };
  const endpoints = new ActorRegistry(endpointActor, {
    clock,
    context: turnContextOf(clock, () => 0),
    commit: () => Promise.reject(new Error("writes nothing")),
    read: () => Promise.reject(new Error("reads nothing")),
  });
  const candidate = { endpointId: "a/b", model: { id: "a/b" } } as Candidate;
  const dependencies = {
    endpoints,
    clock,
    steadyClock,
    slots: noLimits,
    random: () => 0,
    onKeyRejected: () => undefined,
    isDown: () => false,
  };
  const tries = new Failover(
    dependencies,
    { plan: { candidates: [candidate] }, hold: { organizationId: "org" }, log: {} },
    new CallAbort(),
  );
  await tries.run(async (tried) => {
    expect(tried).toBe(candidate);
    steadyClock.advance(MEASURED_MS);
    setByMs = byMs;
  });
  tries.end(true);
  expect(endpoints.get("a/b").turn("health", undefined).latencyMs).toBe(MEASURED_MS);
});
