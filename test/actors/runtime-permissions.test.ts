import { describe, expect, test } from "bun:test";
import { ActorCell } from "../../actors/runtime/cell.ts";
import { defineActor, PermissionDenied } from "../../actors/runtime/definition.ts";
import type { Checkpoint } from "../../db/ledger/rows.ts";
import { counterActor, readTotal } from "./counter-actor.ts";
import { fakeEnvironment, statement } from "./fake-environment.ts";

const nothing = { reads: [], writes: [], events: [] } as const;

async function activeCounter() {
  const world = fakeEnvironment();
  world.answerReadsWith(() => 1);
  const counter = new ActorCell("c1", counterActor, world);
  await counter.activate();
  return { world, counter };
}

describe("what an actor's permissions do not name is denied", () => {
  test("tables that it would read", async () => {
    const world = fakeEnvironment();
    world.answerReadsWith(() => 1);
    const reader = defineActor({
      kind: "reader",
      permissions: { ...nothing, reads: ["others"] },
      load: (_id, context) => context.read(readTotal(["others", "counters"])),
      verbs: { see: (state: number, _: undefined) => ({ state, reply: state }) },
    });
    const denied = new ActorCell("r1", reader, world).ask("see", undefined);
    expect(denied).rejects.toThrow(new PermissionDenied("reader", "read counters"));
  });

  test("tables that it would write", async () => {
    const { world, counter } = await activeCounter();
    const effects = [statement("spend", { tables: ["counters", "accounts"] })];
    expect(counter.ask("cause", effects)).rejects.toThrow(
      new PermissionDenied("counter", "write accounts"),
    );
    expect(world.commits).toEqual([]);
  });

  test("events that it would emit", async () => {
    const { world, counter } = await activeCounter();
    const effects = [statement("tell", { events: ["counter.added", "key.deleted"] })];
    expect(counter.ask("cause", effects)).rejects.toThrow(
      new PermissionDenied("counter", "emit key.deleted"),
    );
    expect(world.commits).toEqual([]);
  });

  test("the ledger, where it was not given its tables", async () => {
    const { world, counter } = await activeCounter();
    const effects = [{ kind: "checkpoint", checkpoint: {} as Checkpoint } as const];
    expect(counter.ask("cause", effects)).rejects.toThrow("write accounts");
    expect(world.commits).toEqual([]);
  });

  test("and the turn that asked for it has changed nothing", async () => {
    const { counter } = await activeCounter();
    await counter.ask("cause", [statement("spend", { tables: ["accounts"] })]).catch(() => {});
    expect(counter.turn("total", undefined)).toBe(1);
  });
});
