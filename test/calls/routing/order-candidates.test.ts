import { describe, expect, test } from "bun:test";
import { orderCandidates } from "../../../src/inference/call/routing/order-candidates.ts";
import type { Candidate } from "../../../src/inference/call/routing/plan-route.ts";
import type { ModelPrices } from "../../../src/lib/catalogue-model.ts";
import { testModel } from "../../ledger/scripted-stream.ts";

const provider = { chat: () => Promise.reject(new Error("is not called")) };

function candidate(
  providerId: string,
  {
    weight,
    key,
    prices = {},
  }: Pick<Candidate, "weight" | "key"> & { prices?: Partial<ModelPrices> } = {},
): Candidate {
  const baseEndpointId = `${providerId}/m`;
  return {
    model: testModel,
    terms: { ...testModel, prices: { ...testModel.prices, ...prices } },
    providerId,
    provider,
    upstreamModel: "m",
    baseEndpointId: baseEndpointId,
    endpointId: key === undefined ? baseEndpointId : `${baseEndpointId}#${key.name}`,
    weight,
    key,
  };
}

const unmeasured = { measured: () => undefined, random: Math.random };
const ids = (candidates: readonly Candidate[]) => candidates.map(({ endpointId }) => endpointId);

/** Of many conversations, how many each endpoint is tried first for. */
function shares(candidates: readonly Candidate[], rounds = 4_000): Record<string, number> {
  const counts: Record<string, number> = {};
  for (let at = 0; at < rounds; at++) {
    const [first] = orderCandidates(candidates, undefined, () => `talk ${at}`, unmeasured);
    counts[first!.endpointId] = (counts[first!.endpointId] ?? 0) + 1 / rounds;
  }
  return counts;
}

describe("weights", () => {
  test("share out the calls, and an endpoint of weight 0 comes last", () => {
    const all = [
      candidate("a", { weight: 1 }),
      candidate("b", { weight: 3 }),
      candidate("c", { weight: 0 }),
    ];
    const { "a/m": a, "b/m": b, "c/m": c } = shares(all);
    expect(a).toBeWithin(0.2, 0.3);
    expect(b).toBeWithin(0.7, 0.8);
    expect(c).toBeUndefined();
    expect(ids(orderCandidates(all, undefined, () => "talk", unmeasured))[2]).toBe("c/m");
  });

  test("keep a conversation where it was, also once another endpoint is gone", () => {
    const all = ["a", "b", "c"].map((id) => candidate(id, { weight: 1 }));
    for (let at = 0; at < 200; at++) {
      const talk = () => `talk ${at}`;
      const [first, second] = orderCandidates(all, undefined, talk, unmeasured);
      expect(orderCandidates(all, undefined, talk, unmeasured)[0]).toBe(first!);
      const withoutLast = all.filter((one) => one === first || one === second);
      expect(orderCandidates(withoutLast, undefined, talk, unmeasured)[0]).toBe(first!);
    }
  });

  test("of keys share out a provider's calls, and do not add to the weight of its endpoint", () => {
    const keys = ["1", "2", "3"].map((name) =>
      candidate("many", { weight: 1, key: { name, weight: name === "3" ? 2 : 1 } }),
    );
    const counts = shares([...keys, candidate("one", { weight: 1 })]);
    expect(counts["one/m"]).toBeWithin(0.45, 0.55);
    expect(counts["many/m#1"]).toBeWithin(0.09, 0.16);
    expect(counts["many/m#3"]).toBeWithin(0.2, 0.3);
  });

  test("of keys leave the order of the endpoints as it is configured", () => {
    const keys = ["1", "2"].map((name) => candidate("many", { key: { name, weight: 1 } }));
    for (let at = 0; at < 50; at++) {
      const order = orderCandidates(
        [candidate("one"), ...keys],
        undefined,
        () => `${at}`,
        unmeasured,
      );
      expect(order[0]!.endpointId).toBe("one/m");
      expect(ids(order).toSorted()).toEqual(["many/m#1", "many/m#2", "one/m"]);
    }
  });
});

describe("sort", () => {
  const cheap = { inputTokenFemto: 1n, outputTokenFemto: 2n };

  test("by price takes the cheapest first", () => {
    const all = [candidate("dear"), candidate("cheap", { prices: cheap }), candidate("dear-too")];
    const order = orderCandidates(all, { sort: "price" }, () => undefined, unmeasured);
    expect(ids(order)).toEqual(["cheap/m", "dear/m", "dear-too/m"]);
  });

  test("by latency or throughput takes the best measured first, after those that nobody has called", () => {
    const seen: Record<string, { answeredMs: number; tokensPerSecond: number }> = {
      "slow/m": { answeredMs: 900, tokensPerSecond: 80 },
      "quick/m": { answeredMs: 90, tokensPerSecond: 8 },
    };
    const all = ["slow", "quick", "new"].map((id) => candidate(id));
    const dependencies = { measured: (id: string) => seen[id], random: Math.random };
    const sorted = (sort: "latency" | "throughput") =>
      ids(orderCandidates(all, { sort }, () => undefined, dependencies));
    expect(sorted("latency")).toEqual(["new/m", "quick/m", "slow/m"]);
    expect(sorted("throughput")).toEqual(["new/m", "slow/m", "quick/m"]);
  });

  test("comes after the providers that order names", () => {
    const all = [candidate("a"), candidate("b", { prices: cheap }), candidate("c")];
    const preferences = { sort: "price", order: ["c", "c", "unknown"] } as const;
    const order = orderCandidates(
      all,
      { ...preferences, order: [...preferences.order] },
      () => undefined,
      unmeasured,
    );
    expect(ids(order)).toEqual(["c/m", "b/m", "a/m"]);
  });
});
