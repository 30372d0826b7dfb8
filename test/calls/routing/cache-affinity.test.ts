import { expect, test } from "bun:test";
import { CacheAffinity, statesOrder } from "../../../src/inference/call/routing/cache-affinity.ts";
import type { Candidate, RoutePlan } from "../../../src/inference/call/routing/plan-route.ts";
import type { CatalogueModel } from "../../../src/lib/catalogue-model.ts";
import { VirtualClock } from "../../../src/lib/clock.ts";

const KEPT_MS = 600_000;
const [MODEL, OTHER_MODEL] = ["a/m", "b/n"].map((id) => ({ id }) as CatalogueModel);

function candidate(endpointId: string, over: Partial<Candidate> = {}): Candidate {
  const prices = { inputTokenFemto: 10n, cachedInputTokenFemto: 1n };
  return { endpointId, model: MODEL, terms: { prices }, ...over } as Candidate;
}

const planOf = (...candidates: Candidate[]): RoutePlan => ({ models: [MODEL!], candidates });
const orderOf = ({ candidates }: RoutePlan) => candidates.map(({ endpointId }) => endpointId);
const say = (text: string | undefined) => () => text;

function open() {
  const clock = new VirtualClock();
  return { clock, warm: new CacheAffinity(clock) };
}

const [a, b, c] = [candidate("a"), candidate("b"), candidate("c")];

test("a conversation stays at the endpoint that took it over, and no other moves with it", () => {
  const { warm } = open();
  const plan = planOf(a!, b!, c!);
  expect(warm.apply(plan, say("one"))).toBe(plan);
  warm.recordServed(plan, b!, say("one"));
  const stayed = warm.apply(plan, say("one"));
  expect(orderOf(stayed)).toEqual(["b", "a", "c"]);
  expect(warm.apply(plan, say("two"))).toBe(plan);
  expect(warm.apply(plan, say(undefined))).toBe(plan);
  // It fails there, and goes on at the third.
  warm.recordServed(stayed, c!, say("one"));
  expect(orderOf(warm.apply(plan, say("one")))).toEqual(["c", "a", "b"]);
  warm.recordServed(plan, a!, say("one"));
  expect(orderOf(warm.apply(plan, say("one")))).toEqual(["a", "b", "c"]);
});

test("it is forgotten ten minutes behind its last call", () => {
  const { warm, clock } = open();
  const plan = planOf(a!, b!);
  warm.recordServed(plan, b!, say("one"));
  for (let turn = 0; turn < 3; turn++) {
    clock.advance(KEPT_MS);
    const stayed = warm.apply(plan, say("one"));
    expect(orderOf(stayed)).toEqual(["b", "a"]);
    warm.recordServed(stayed, b!, say("one"));
  }
  clock.advance(KEPT_MS + 1);
  expect(warm.apply(plan, say("one"))).toBe(plan);
});

test("nothing stays at another model, at who is paid otherwise, or where a cache saves nothing", () => {
  const { warm } = open();
  const own = candidate("own", { byokKeyId: "pk_1" });
  const other = candidate("other", { model: OTHER_MODEL! });
  const prices = { inputTokenFemto: 10n, cachedInputTokenFemto: 10n };
  const uncached = candidate("uncached", { terms: { prices } as Candidate["terms"] });
  const dearer = { inputTokenFemto: 90n, cachedInputTokenFemto: 10n };
  const dear = candidate("dear", { terms: { prices: dearer } as Candidate["terms"] });
  for (const [first, second] of [
    [own, a!],
    [a!, other],
    [a!, uncached],
    [a!, dear],
  ] as const) {
    const plan = planOf(first, second);
    warm.recordServed(plan, second, say("one"));
    expect(warm.apply(plan, say("one"))).toBe(plan);
  }
});

test("what is not in the plan any more changes nothing", () => {
  const { warm } = open();
  warm.recordServed(planOf(a!, b!), b!, say("one"));
  const plan = planOf(a!, c!);
  expect(warm.apply(plan, say("one"))).toBe(plan);
});

test("no more than 10,000 conversations are noted", () => {
  const { warm } = open();
  const plan = planOf(a!, b!);
  for (let at = 0; at <= 10_000; at++) warm.recordServed(plan, b!, say(String(at)));
  expect(warm.apply(plan, say("0"))).toBe(plan);
  expect(orderOf(warm.apply(plan, say("1")))).toEqual(["b", "a"]);
});

test("an order that the request states stands", () => {
  expect(statesOrder({ order: ["x"] })).toBeTrue();
  expect(statesOrder({ sort: "price" })).toBeTrue();
  for (const preferences of [undefined, null, {}, { order: [] }, { only: ["x"], sort: null }]) {
    expect(statesOrder(preferences)).toBeFalse();
  }
});
