import { describe, expect, test } from "bun:test";
import { ActorRegistry, type PassivationPolicy } from "../../actors/runtime/registry.ts";
import { counterActor } from "./counter-actor.ts";
import { type FakeEnvironment, fakeEnvironment, settled } from "./fake-environment.ts";

const IDLE_MS = 60_000;

function registry(policy: Partial<PassivationPolicy> = {}) {
  const world = fakeEnvironment();
  world.answerReadsWith(() => 0);
  const counters = new ActorRegistry(counterActor, world, {
    maxActors: 100,
    idleMs: IDLE_MS,
    ...policy,
  });
  return { world, counters };
}

type Counters = ReturnType<typeof registry>["counters"];

async function use(counters: Counters, world: FakeEnvironment, ...ids: string[]): Promise<void> {
  for (const id of ids) {
    world.clock.advance(2_000);
    await counters.get(id).ask("total", undefined);
  }
}

describe("an actor that was idle for long", () => {
  test("leaves memory; one that was used meanwhile stays", async () => {
    const { world, counters } = registry();
    await use(counters, world, "a", "b");
    world.clock.advance(IDLE_MS - 3_000);
    await use(counters, world, "a");
    world.clock.advance(1_500);
    counters.passivateIdle();
    expect(counters.peek("a")).toBeDefined();
    expect(counters.peek("b")).toBeUndefined();
  });

  test("stays while it knows what no table knows", async () => {
    const { world, counters } = registry();
    await counters.get("a").ask("hold", 1);
    world.clock.advance(10 * IDLE_MS);
    counters.passivateIdle();
    expect(counters.peek("a")).toBeDefined();
    counters.get("a").turn("hold", -1);
    world.clock.advance(10 * IDLE_MS);
    counters.passivateIdle();
    expect(counters.size).toBe(0);
  });

  test("stays while it loads and while a commit of it is under way", async () => {
    const { world, counters } = registry();
    await use(counters, world, "committing");
    const added = counters.get("committing").ask("add", 1);
    const loading = counters.get("loading").ask("total", undefined);
    world.clock.advance(10 * IDLE_MS);
    counters.passivateIdle();
    expect(counters.size).toBe(2);
    await loading;
    await world.commits[0]!.succeed();
    await added;
    world.clock.advance(10 * IDLE_MS);
    counters.passivateIdle();
    expect(counters.size).toBe(0);
  });

  test("is loaded afresh when it is asked again", async () => {
    const { world, counters } = registry();
    await use(counters, world, "a");
    world.clock.advance(2 * IDLE_MS);
    counters.passivateIdle();
    world.answerReadsWith(() => 42);
    expect(await counters.get("a").ask("total", undefined)).toBe(42);
  });
});

describe("where there are more actors than fit", () => {
  test("the least recently used leaves memory", async () => {
    const { world, counters } = registry({ maxActors: 3 });
    await use(counters, world, "a", "b", "c", "a", "d");
    expect(["a", "b", "c", "d"].filter((id) => counters.peek(id) !== undefined)).toEqual([
      "a",
      "c",
      "d",
    ]);
  });

  test("one that holds or waits stays, and the next one goes in its place", async () => {
    const { world, counters } = registry({ maxActors: 3 });
    await use(counters, world, "held", "committing", "idle");
    counters.get("held").turn("hold", 1);
    const added = counters.get("committing").ask("add", 1);
    await use(counters, world, "new");
    expect(counters.peek("idle")).toBeUndefined();
    expect(counters.size).toBe(3);
    await world.commits[0]!.succeed();
    await added;
  });

  test("the one that was just asked for never leaves, even where all others must stay", async () => {
    const { world, counters } = registry({ maxActors: 2 });
    await use(counters, world, "x", "y");
    counters.get("x").turn("hold", 1);
    counters.get("y").turn("hold", 1);
    const cell = counters.get("z");
    expect(counters.peek("z")).toBe(cell);
    await cell.ask("hold", 1);
    expect(await counters.get("z").ask("hold", 0)).toBe(1);
    expect(counters.size).toBe(3);
  });

  test("memory goes back to its bound once they may leave", async () => {
    const { world, counters } = registry({ maxActors: 2 });
    for (const id of ["a", "b", "c", "d", "e"]) await counters.get(id).ask("hold", 1);
    expect(counters.size).toBe(5);
    for (const id of ["a", "b", "c", "d", "e"]) counters.get(id).turn("hold", -1);
    await use(counters, world, "f");
    expect(counters.size).toBe(2);
    expect(counters.peek("f")).toBeDefined();
  });
});

test("after a gap in the news every actor loads afresh before its next turn, and none before", async () => {
  const { world, counters } = registry();
  await use(counters, world, "a", "b");
  let loads = 0;
  world.answerReadsWith(() => {
    loads++;
    return 7;
  });
  counters.forgetAll();
  await settled();
  expect(loads).toBe(0);
  expect(await counters.get("a").ask("total", undefined)).toBe(7);
  expect(loads).toBe(1);
});
