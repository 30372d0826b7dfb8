import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { organizationActor } from "../../actors/organization/actor.ts";
import {
  headroom,
  hold,
  keepHolds,
  noteTotals,
  type OrganizationFacts,
  type OrganizationState,
  organizationState,
} from "../../actors/organization/state.ts";

function state(over: Partial<OrganizationFacts> = {}): OrganizationState {
  return organizationState({
    id: "org_1",
    record: { name: "One", plan: "free" },
    creditNano: 1_000n,
    creditLimitNano: 0n,
    postedNano: 0n,
    sequence: 1n,
    heldNano: 0n,
    longHeldNano: 0n,
    ...over,
  });
}

const change = (from: OrganizationState, byNano: bigint) =>
  organizationActor.verbs.changeHeld(from, { byNano }).state;

describe("an organization's headroom", () => {
  test("is less by what is held for longer than a process lives", () => {
    expect(headroom(state({ heldNano: 200n, longHeldNano: 300n })).availableNano).toBe(500n);
  });

  test("is its credit without its spend, and without what is held", () => {
    expect(headroom(state({ postedNano: 300n, heldNano: 200n }))).toEqual({
      plan: "free",
      creditLimitNano: 0n,
      remainingNano: 700n,
      availableNano: 500n,
      unheldNano: 500n,
    });
    expect(headroom(state({ record: undefined })).plan).toBeUndefined();
  });

  test("counts the credit limit, and has no end without one", () => {
    const facts = { postedNano: 1_300n, heldNano: 200n };
    expect(headroom(state({ ...facts, creditLimitNano: 600n }))).toMatchObject({
      remainingNano: 300n,
      availableNano: 100n,
      unheldNano: -500n,
    });
    const unlimited = state({ ...facts, creditLimitNano: null });
    expect(hold(unlimited, 10n ** 18n)).toBeDefined();
    expect(hold(state({ ...facts, creditLimitNano: 600n }), 101n)).toBeUndefined();
  });

  test("never falls below zero by holds that fit and charges within them, and holds balance out", () => {
    const request = fc.record({ hold: fc.nat({ max: 400 }), charge: fc.nat({ max: 400 }) });
    fc.assert(
      fc.property(fc.array(request), fc.infiniteStream(fc.boolean()), (requests, coins) => {
        let now = state();
        let balance = now.creditNano;
        const running: { holdNano: bigint; chargeNano: bigint }[] = [];
        const finish = () => {
          const ended = running.shift()!;
          balance -= ended.chargeNano;
          now = noteTotals(now, {
            creditNano: now.creditNano,
            postedNano: now.postedNano + ended.chargeNano,
            sequence: now.sequence + 1n,
          });
          now = change(now, -ended.holdNano);
        };
        for (const request of requests) {
          const holdNano = BigInt(request.hold);
          const fits = holdNano === 0n || holdNano <= headroom(now).availableNano;
          const after = hold(now, holdNano);
          expect(after !== undefined).toBe(fits);
          if (after !== undefined) {
            now = after;
            const chargeNano = BigInt(Math.min(request.charge, request.hold));
            running.push({ holdNano, chargeNano });
          }
          expect(headroom(now).availableNano).toBeGreaterThanOrEqual(0n);
          expect(headroom(now).remainingNano).toBe(balance);
          if (running.length > 0 && coins.next().value) finish();
        }
        while (running.length > 0) finish();
        expect(now.heldNano).toBe(0n);
        expect(headroom(now).availableNano).toBe(balance);
      }),
    );
  });
});

describe("of two totals", () => {
  const totals = fc.record({
    creditNano: fc.bigInt({ min: 0n, max: 10_000n }),
    postedNano: fc.bigInt({ min: 0n, max: 10_000n }),
    sequence: fc.bigInt({ min: 0n, max: 50n }),
  });

  test("the one with the later transaction stands, in whatever order they come", () => {
    fc.assert(
      fc.property(fc.array(totals, { minLength: 1 }), (told) => {
        const last = told.reduce(noteTotals, state({ sequence: -1n }));
        const newest = told.reduce((a, b) => (b.sequence > a.sequence ? b : a));
        expect(last).toMatchObject(newest);
      }),
    );
  });

  test("also where one was just loaded: what is held and what is newer stay, the record is the loaded one", () => {
    const before = state({ postedNano: 500n, sequence: 9n, heldNano: 70n });
    const older = state({ record: { name: "New", plan: "pro" }, postedNano: 400n, sequence: 8n });
    expect(keepHolds(before, older)).toEqual({ ...before, record: older.record });
    const newer = state({ creditNano: 5_000n, postedNano: 600n, sequence: 10n });
    expect(keepHolds(before, newer)).toEqual({ ...newer, heldNano: 70n });
  });
});

test("an organization stays in memory while something of it is held", () => {
  const mayPassivate = organizationActor.mayPassivate!;
  expect(mayPassivate(state())).toBe(true);
  expect(mayPassivate(change(state(), 1n))).toBe(false);
  expect(mayPassivate(change(change(state(), 1n), -1n))).toBe(true);
});

test("what an organization writes leaves its state as it is, so that one refusal concerns no other", () => {
  const command = {
    kind: "adjustment",
    id: "cmd_1",
    transactionId: "txn_1",
    organizationId: "org_1",
    amountNano: 5n,
    description: "",
  } as const;
  const before = state();
  expect(organizationActor.verbs.carryOutOrder(before, command).state).toBe(before);
  expect(organizationActor.verbs.refuseOrder(before, command).state).toBe(before);
  expect(organizationActor.verbs.headroom(before, undefined).state).toBe(before);
});
