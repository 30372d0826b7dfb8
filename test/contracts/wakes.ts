import { describe, expect, test } from "bun:test";
import type { Wakes } from "../../src/platform/cluster/interface.ts";
import { until } from "../support/until.ts";

/** The wakes of all instances there are, and what their listeners' failures were. */
export interface OwnedWakes {
  readonly instances: readonly Wakes[];
  readonly errors: readonly unknown[];
}

/** What every implementation of wake-ups keeps. Each test has kinds of its own. */
export function describeWakes(open: () => OwnedWakes | Promise<OwnedWakes>): void {
  const newKind = () => `kind-${crypto.randomUUID()}`;
  const hearAll = ({ instances }: OwnedWakes, kind: string) =>
    instances.map((wakes) => {
      const heard: string[] = [];
      wakes.onWake(kind, (id) => heard.push(id));
      return heard;
    });

  describe("wake-ups", () => {
    test("reach every instance, the one that woke too, and those who listen to that kind alone", async () => {
      const owned = await open();
      const [kind, otherKind] = [newKind(), newKind()];
      const heard = hearAll(owned, kind);
      const others = hearAll(owned, otherKind);
      owned.instances[0]!.wake(kind, "one");
      await until("all to hear it", () => heard.every((ids) => ids.includes("one")));
      owned.instances.at(-1)!.wake(otherKind, "two");
      await until("all to hear the other", () => others.every((ids) => ids.includes("two")));
      expect(heard.flat()).not.toContain("two");
      expect(others.flat()).not.toContain("one");
    });

    test("of one turn come after it, each actor once", async () => {
      const owned = await open();
      const kind = newKind();
      const heard = hearAll(owned, kind);
      for (let i = 0; i < 300; i++) owned.instances[0]!.wake(kind, `id ${i % 3}`);
      expect(heard.flat()).toEqual([]);
      const ids = ["id 0", "id 1", "id 2"];
      await until("all to hear them", () => heard.every((one) => one.length >= 3));
      // What would come twice would come before this.
      owned.instances[0]!.wake(kind, "last");
      await until("the last", () => heard.every((one) => one.includes("last")));
      for (const one of heard) expect(one.toSorted()).toEqual([...ids, "last"]);
    });

    test("are not heard by who stopped listening, and still by the others", async () => {
      const { instances } = await open();
      const kind = newKind();
      const [stopped, going]: [string[], string[]] = [[], []];
      const stop = instances[0]!.onWake(kind, (id) => stopped.push(id));
      instances[0]!.onWake(kind, (id) => going.push(id));
      stop();
      instances[0]!.wake(kind, "one");
      await until("the other to hear it", () => going.length === 1);
      expect(stopped).toEqual([]);
    });

    test("reach the others where one listener fails, and its failure is told", async () => {
      const owned = await open();
      const kind = newKind();
      const failure = new Error("a listener failed");
      owned.instances[0]!.onWake(kind, () => {
        throw failure;
      });
      const heard = hearAll(owned, kind);
      owned.instances[0]!.wake(kind, "one");
      await until("all to hear it", () => heard.every((ids) => ids.includes("one")));
      expect(owned.errors).toContain(failure);
    });

    test("may be given by who was woken", async () => {
      const owned = await open();
      const kind = newKind();
      const [first] = owned.instances;
      first!.onWake(kind, (id) => {
        if (id === "one") first!.wake(kind, "two");
      });
      const heard = hearAll(owned, kind);
      first!.wake(kind, "one");
      await until("all to hear both", () => heard.every((ids) => ids.length === 2));
    });
  });
}
