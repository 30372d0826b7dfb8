import { describe, expect, test } from "bun:test";
import { PLACES, type Place } from "./places.ts";

/** What the greedy organization asks for, far more than any place has. */
const GREEDY = 11_000;
/** What the other one asks for. */
const OTHER = 3;

/** A place under the work of several organizations, which ends when the test says so. */
class Walk {
  readonly #place: ReturnType<Place["create"]>;
  readonly #running: { readonly owner: string; readonly end: () => void }[] = [];
  readonly order: string[] = [];
  rejected = new Map<string, number>();

  constructor(place: Place) {
    this.#place = place.create();
  }

  async begin(owner: string, count: number): Promise<void> {
    for (let at = 0; at < count; at++) {
      this.#place.begin(owner).then((end) => {
        if (end === undefined) this.rejected.set(owner, (this.rejected.get(owner) ?? 0) + 1);
        else {
          this.#running.push({ owner, end });
          this.order.push(owner);
        }
      });
    }
    await settled();
  }

  running(owner: string): number {
    return this.#running.filter((one) => one.owner === owner).length;
  }

  /** Ends the work of an organization that runs longest. */
  async endOne(owner: string): Promise<void> {
    const at = this.#running.findIndex((one) => one.owner === owner);
    const [one] = this.#running.splice(at, 1);
    one!.end();
    await settled();
  }
}

/** Everything that can go on without a clock has gone on. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}

describe.each(PLACES.map((place) => [place.name, place] as const))("%s", (_, place) => {
  test("serves another organization next, however much a greedy one has asked for", async () => {
    const walk = new Walk(place);
    await walk.begin("greedy", GREEDY);
    expect(walk.running("greedy")).toBeGreaterThan(0);
    await walk.begin("other", OTHER);
    expect(walk.rejected.get("other")).toBeUndefined();
    // It is served immediately, or after the work that ends next.
    if (walk.running("other") === 0) await walk.endOne("greedy");
    expect(walk.running("other")).toBeGreaterThan(0);
    for (let ended = 0; ended < OTHER && walk.running("other") < OTHER; ended++) {
      const begun = walk.order.length;
      await walk.endOne("greedy");
      const hasGrown = walk.order.slice(begun).includes("greedy");
      // The greedy one gets a place only if it held no more than the other one.
      if (hasGrown) {
        expect(walk.running("greedy") - 1).toBeLessThanOrEqual(walk.running("other"));
      }
    }
  });

  test("gives one organization at most half while another one waits", async () => {
    const walk = new Walk(place);
    await walk.begin("greedy", GREEDY);
    await walk.begin("other", GREEDY);
    if (place.isRoom) return expect(walk.running("other")).toBeGreaterThan(0);
    // All that ran before has ended.
    const ran = walk.running("greedy");
    for (let ended = 0; ended < ran; ended++) await walk.endOne("greedy");
    const [greedy, other] = [walk.running("greedy"), walk.running("other")];
    expect(greedy).toBeLessThanOrEqual(Math.ceil((greedy + other) / 2));
    expect(other).toBeLessThanOrEqual(Math.ceil((greedy + other) / 2));
  });
});
