import { beforeEach, expect, test } from "bun:test";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { InstanceLease } from "../../src/platform/cluster/membership.ts";
import { stateOf } from "../actors/fake-environment.ts";

let nowMs: number;
let lease: InstanceLease;
beforeEach(() => {
  nowMs = 0;
  lease = new InstanceLease(() => nowMs);
});

/** Heartbeats four times a second, each answered at once. */
function beatFor(ms: number): void {
  for (const untilMs = nowMs + ms; nowMs < untilMs; nowMs += 250) lease.renew(nowMs);
}

test("a lease counts from the beginning of the last heartbeat, not from its answer", () => {
  expect(lease.isCurrent).toBeFalse();
  nowMs = 2_000;
  lease.renew(0);
  expect(lease.isCurrent).toBeTrue();
  nowMs = INSTANCE_LEASE_MS - 1;
  expect(lease.isCurrent).toBeTrue();
  nowMs = INSTANCE_LEASE_MS;
  expect(lease.isCurrent).toBeFalse();
});

test("whoever waits for it goes on with the first heartbeat that is young enough", async () => {
  lease.renew(0);
  nowMs = INSTANCE_LEASE_MS;
  const waiting = lease.whenCurrent()!;
  nowMs = 2 * INSTANCE_LEASE_MS;
  lease.renew(INSTANCE_LEASE_MS);
  expect(await stateOf(waiting)).toBe("pending");
  lease.renew(nowMs);
  expect(await stateOf(waiting)).toBe("done");
  expect(lease.whenCurrent()).toBeUndefined();
});

test("others are judged only after a whole lease of heartbeats, and after each outage anew", () => {
  beatFor(INSTANCE_LEASE_MS);
  expect(lease.mayJudgeOthers).toBeTrue();
  // A heartbeat that failed.
  lease.interrupt();
  expect(lease.mayJudgeOthers).toBeFalse();
  beatFor(INSTANCE_LEASE_MS - 250);
  expect(lease.mayJudgeOthers).toBeFalse();
  beatFor(500);
  expect(lease.mayJudgeOthers).toBeTrue();
  // One that hung, and was answered in the end.
  nowMs += 10_000;
  expect(lease.mayJudgeOthers).toBeFalse();
  beatFor(INSTANCE_LEASE_MS - 250);
  expect(lease.mayJudgeOthers).toBeFalse();
  beatFor(500);
  expect(lease.mayJudgeOthers).toBeTrue();
});
