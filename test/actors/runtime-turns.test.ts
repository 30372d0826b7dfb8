import { beforeEach, describe, expect, test } from "bun:test";
import { ActorCell, MAX_MAILBOX_MESSAGES } from "../../actors/runtime/cell.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { type CounterState, counterActor } from "./counter-actor.ts";
import { type FakeEnvironment, fakeEnvironment, settled, stateOf } from "./fake-environment.ts";

let world: FakeEnvironment;
let counter: ActorCell<CounterState, typeof counterActor.verbs>;

beforeEach(() => {
  world = fakeEnvironment();
  counter = new ActorCell("c1", counterActor, world);
});

async function active(total = 0): Promise<void> {
  const loading = counter.activate();
  await world.reads[0]!.answer(total);
  await loading;
}

describe("turns", () => {
  test("run one after another in the order of their messages, each on what the one before left", async () => {
    const replies = [1, 10, 100].map((by) => counter.ask("add", by));
    await world.reads[0]!.answer(5);
    expect(world.commits.map(({ names }) => names[0])).toEqual(["set 6", "set 16", "set 116"]);
    for (const commit of [...world.commits]) await commit.succeed();
    expect(await Promise.all(replies)).toEqual([6, 16, 116]);
  });

  test("know the time and the randomness of their environment, and no other", async () => {
    await active();
    world.clock.advance(1_234);
    expect(counter.turn("now", undefined)).toEqual([world.clock.nowMs(), 0.5]);
  });

  test("that throw change nothing and harm nobody else", async () => {
    await active(3);
    expect(counter.ask("fail", "broken")).rejects.toThrow("broken");
    expect(() => counter.turn("fail", "broken")).toThrow("broken");
    expect(await counter.ask("total", undefined)).toBe(3);
    expect(counter.waitingMessages).toBe(0);
  });

  test("of a verb that writes are refused where nobody would wait for the commit, and change nothing", async () => {
    await active(3);
    expect(() => counter.turn("add", 4)).toThrow("verb counter.add writes");
    expect(counter.turn("total", undefined)).toBe(3);
    expect(world.commits).toEqual([]);
  });
});

describe("the mailbox", () => {
  test("holds messages while the actor loads, once for all of them", async () => {
    const replies = Array.from({ length: 10 }, () => counter.ask("hold", 1));
    await settled();
    expect(world.reads).toHaveLength(1);
    expect(counter.waitingMessages).toBe(10);
    await world.reads[0]!.answer(0);
    expect(await Promise.all(replies)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(counter.waitingMessages).toBe(0);
  });

  test("when full answers 503 with Retry-After at once, and takes messages again when it has room", async () => {
    const waiting = Array.from({ length: MAX_MAILBOX_MESSAGES }, () => counter.ask("hold", 1));
    const refused = counter.ask("hold", 1);
    expect(await stateOf(refused)).toBe("failed");
    const error = await refused.catch((thrown) => thrown as GatewayError);
    expect(error).toBeInstanceOf(GatewayError);
    expect(error).toMatchObject({ code: "overloaded", retryAfterSeconds: 1 });
    await world.reads[0]!.answer(0);
    expect((await Promise.all(waiting)).at(-1)).toBe(MAX_MAILBOX_MESSAGES);
    expect(await counter.ask("hold", 1)).toBe(MAX_MAILBOX_MESSAGES + 1);
  });

  test("when full of replies that wait for a commit refuses a message before its turn: nothing of it happens", async () => {
    await active();
    const first = counter.ask("add", 1);
    const waiting = Array.from({ length: MAX_MAILBOX_MESSAGES - 1 }, () => counter.ask("hold", 1));
    const refused = counter.ask("add", 1_000);
    expect(await refused.catch((error) => (error as GatewayError).code)).toBe("overloaded");
    expect(world.commits).toHaveLength(1);
    await world.commits[0]!.succeed();
    expect(await first).toBe(1);
    await Promise.all(waiting);
    expect(await counter.ask("total", undefined)).toBe(1);
  });
});

describe("the output gate", () => {
  test("keeps a reply until its commit is durable", async () => {
    await active();
    const reply = counter.ask("add", 1);
    expect(await stateOf(reply)).toBe("pending");
    await world.commits[0]!.succeed();
    expect(await reply).toBe(1);
  });

  test("keeps replies of later turns until the commits before them are durable, also of turns that only read", async () => {
    await active();
    const added = counter.ask("add", 1);
    const seen = counter.ask("total", undefined);
    const addedAgain = counter.ask("add", 2);
    const [first, second] = [...world.commits];
    await second!.succeed();
    expect(await Promise.all([added, seen, addedAgain].map(stateOf))).toEqual(
      Array(3).fill("pending"),
    );
    await first!.succeed();
    expect(await Promise.all([added, seen, addedAgain])).toEqual([1, 1, 3]);
  });

  test("is open again once nothing is under way", async () => {
    await active();
    const reply = counter.ask("add", 1);
    expect(counter.gate).toBeDefined();
    await world.commits[0]!.succeed();
    await reply;
    expect(counter.gate).toBeUndefined();
    expect(await stateOf(counter.ask("total", undefined))).toBe("done");
  });
});

describe("a failed commit", () => {
  const broken = new Error("the row was refused");

  test("rejects its own turn with its own error and drops the state; the next turn loads afresh", async () => {
    await active(5);
    const reply = counter.ask("add", 1);
    const failed = world.commits[0]!.fail(broken);
    expect(reply).rejects.toBe(broken);
    await failed;
    expect(counter.isActive).toBe(false);
    const next = counter.ask("total", undefined);
    await settled();
    await world.reads[0]!.answer(50);
    expect(await next).toBe(50);
  });

  test("keeps what only memory knows", async () => {
    await active(5);
    await counter.ask("hold", 7);
    const reply = counter.ask("add", 1).catch(() => "failed");
    await counter.turn("hold", 2);
    await world.commits[0]!.fail(broken);
    expect(await reply).toBe("failed");
    const next = counter.ask("hold", 0);
    await settled();
    await world.reads[0]!.answer(5);
    expect(await next).toBe(9);
  });

  test("lets no reply out that was decided on what it would have written: those turns are decided again", async () => {
    await active(5);
    const failing = counter.ask("add", 1);
    const seen = counter.ask("total", undefined);
    const behind = counter.ask("add", 10);
    const [first, second] = [...world.commits];
    expect(second!.commitChain).toBe(first!.commitChain);
    failing.catch(() => {});
    await first!.fail(broken);
    // What hands in later effects of the same lineage learns from it that they must not be written.
    expect(second!.commitChain.isCancelled).toBe(true);
    expect(await Promise.all([failing, seen, behind].map(stateOf))).toEqual([
      "failed",
      "pending",
      "pending",
    ]);
    await second!.fail(new Error("given up"));
    await world.reads[0]!.answer(5);
    expect(world.commits.map(({ names }) => names[0])).toEqual(["set 15"]);
    expect(world.commits[0]!.commitChain.isCancelled).toBe(false);
    await world.commits[0]!.succeed();
    expect(await behind).toBe(15);
    expect(await seen).toBe(5);
  });

  test("never rejects a turn with the error of another one", async () => {
    await active(0);
    const asked = Array.from({ length: 20 }, (_, i) => counter.ask("add", i));
    const outcomes = Promise.allSettled(asked);
    for (const commit of [...world.commits]) {
      if (commit.names[0] === "set 1" || commit.commitChain.isCancelled) await commit.fail(broken);
      else await commit.succeed();
    }
    await settled();
    await world.reads[0]!.answer(0);
    while (world.commits.length > 0) await world.commits[0]!.succeed();
    const rejected = (await outcomes).flatMap(({ status }, i) =>
      status === "rejected" ? [i] : [],
    );
    expect(rejected).toEqual([1]);
    expect(await counter.ask("total", undefined)).toBe(189);
  });

  test("of a turn that left the state as it was concerns nobody else", async () => {
    await active(5);
    const told = counter.ask("tell", "one");
    const behind = counter.ask("tell", "two");
    const seen = counter.ask("total", undefined);
    expect(await seen).toBe(5);
    const [first, second] = [...world.commits];
    told.catch(() => {});
    await first!.fail(broken);
    expect(told).rejects.toBe(broken);
    expect(await stateOf(behind)).toBe("pending");
    await second!.succeed();
    expect(await behind).toBe("two");
    expect(counter.isActive).toBe(true);
    expect(world.reads).toEqual([]);
  });

  test("takes back what was decided behind it, also where that left the state as it was", async () => {
    await active(5);
    const failing = counter.ask("add", 1);
    const told = counter.ask("tell", "six");
    failing.catch(() => {});
    const [first, second] = [...world.commits];
    await first!.fail(broken);
    expect(second!.commitChain.isCancelled).toBe(true);
    await second!.fail(new Error("given up"));
    await world.reads[0]!.answer(5);
    await world.commits[0]!.succeed();
    expect(await told).toBe("six");
  });

  test("leaves a turn whose own commit became durable with its reply", async () => {
    await active(0);
    const first = counter.ask("add", 1);
    const second = counter.ask("add", 2);
    const [one, two] = [...world.commits];
    await two!.succeed();
    first.catch(() => {});
    await one!.fail(broken);
    expect(await second).toBe(3);
    expect(first).rejects.toBe(broken);
  });
});
