import { beforeEach, describe, expect, test } from "bun:test";
import { ActorCell } from "../../actors/runtime/cell.ts";
import { type CounterState, counterActor } from "./counter-actor.ts";
import { type FakeEnvironment, fakeEnvironment, settled, stateOf } from "./fake-environment.ts";

let world: FakeEnvironment;
let counter: ActorCell<CounterState, typeof counterActor.verbs>;

beforeEach(() => {
  world = fakeEnvironment();
  counter = new ActorCell("c1", counterActor, world);
});

describe("loading", () => {
  test("that finds nothing is believed for a moment only", async () => {
    const optional = new ActorCell(
      "c2",
      { ...counterActor, isAbsent: ({ total }: CounterState) => total === 0 },
      world,
    );
    let table = 0;
    let reads = 0;
    world.answerReadsWith(() => {
      reads++;
      return table;
    });
    expect(await optional.ask("hold", 3)).toBe(3);
    expect(await optional.ask("total", undefined)).toBe(0);
    expect(reads).toBe(1);
    table = 7;
    await world.clock.advance(250);
    expect(optional.isActive).toBe(false);
    expect(await optional.ask("total", undefined)).toBe(7);
    expect(await optional.ask("hold", 1)).toBe(4);
    expect(reads).toBe(2);
    await world.clock.advance(60_000);
    expect(optional.isActive).toBe(true);
  });

  test("that fails rejects those who waited, and leaves the actor usable", async () => {
    const waiting = [counter.ask("total", undefined), counter.ask("add", 1)];
    const outcomes = Promise.allSettled(waiting);
    await world.reads[0]!.fail(new Error("no database"));
    expect((await outcomes).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect(counter.waitingMessages).toBe(0);
    expect(world.commits).toEqual([]);
    const next = counter.ask("total", undefined);
    await settled();
    await world.reads[0]!.answer(8);
    expect(await next).toBe(8);
  });

  test("begins again where the table changed meanwhile, so that nobody acts on the older row", async () => {
    const reply = counter.ask("total", undefined);
    await settled();
    counter.forget();
    await world.reads[0]!.answer(1);
    expect(await stateOf(reply)).toBe("pending");
    await world.reads[0]!.answer(2);
    expect(await reply).toBe(2);
  });

  test("waits for a commit that is under way, because its row is not in the table yet", async () => {
    const loading = counter.activate();
    await world.reads[0]!.answer(0);
    await loading;
    const added = counter.ask("add", 5);
    counter.forget();
    const seen = counter.ask("total", undefined);
    await settled();
    expect(world.reads).toEqual([]);
    await world.commits[0]!.succeed();
    expect(await added).toBe(5);
    await world.reads[0]!.answer(5);
    expect(await seen).toBe(5);
  });

  test("keeps what only memory knows when the table changed", async () => {
    const loading = counter.activate();
    await world.reads[0]!.answer(1);
    await loading;
    counter.turn("hold", 3);
    counter.forget();
    expect(counter.isActive).toBe(false);
    expect(counter.isLoaded).toBe(true);
    const held = counter.ask("hold", 1);
    await settled();
    // Even what is held while the load is under way.
    counter.turn("hold", 10);
    await world.reads[0]!.answer(2);
    expect(await held).toBe(14);
    expect(counter.turn("total", undefined)).toBe(2);
  });

  test("has not happened before the first message", async () => {
    await settled();
    expect(world.reads).toEqual([]);
    expect(() => counter.turn("total", undefined)).toThrow("not active");
    counter.forget();
    expect(world.reads).toEqual([]);
  });
});
