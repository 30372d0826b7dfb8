import { expect, test } from "bun:test";
import { SendSlots } from "../../src/services/webhooks/send-slots.ts";

/** Takes, and tells when there was room. */
function taking(slots: SendSlots, organizationId: string): { isIn: boolean } {
  const taken = { isIn: false };
  const room = slots.take(organizationId);
  if (room === undefined) taken.isIn = true;
  else void room.then(() => (taken.isIn = true));
  return taken;
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test("no more than the bound are under way, and none waits while there is room for it", async () => {
  const slots = new SendSlots(4);
  const all = Array.from({ length: 10 }, (_, i) => taking(slots, `org_${i}`));
  for (let done = 0; done < 6; done++) {
    await settle();
    expect(all.filter(({ isIn }) => isIn)).toHaveLength(4 + done);
    expect(slots.inFlight).toBe(4);
    slots.give(`org_${done}`);
  }
});

test("one organization has half of it at most, so that others never wait for its receivers", async () => {
  const slots = new SendSlots(4);
  const greedy = Array.from({ length: 100 }, () => taking(slots, "greedy"));
  const [one, other, third] = [taking(slots, "one"), taking(slots, "other"), taking(slots, "one")];
  await settle();
  expect(greedy.filter(({ isIn }) => isIn)).toHaveLength(2);
  expect([one.isIn, other.isIn, third.isIn]).toEqual([true, true, false]);
  slots.give("one");
  await settle();
  expect(third.isIn).toBeTrue();
  expect(greedy.filter(({ isIn }) => isIn)).toHaveLength(2);
});

test("whoever cannot wait is told so, and takes nothing", () => {
  const slots = new SendSlots(2);
  expect([slots.tryTake("a"), slots.tryTake("a"), slots.tryTake("b"), slots.tryTake("c")]).toEqual([
    true,
    false,
    true,
    false,
  ]);
  slots.give("a");
  expect([slots.tryTake("c"), slots.tryTake("a")]).toEqual([true, false]);
  expect(slots.inFlight).toBe(2);
});

test("organizations take turns", async () => {
  const slots = new SendSlots(1);
  const order: string[] = [];
  for (const name of ["a", "a", "a", "b", "c"]) {
    const room = slots.take(name);
    if (room === undefined) order.push(name);
    else void room.then(() => order.push(name));
  }
  for (let i = 0; i < 4; i++) {
    slots.give(order.at(-1)!);
    await settle();
  }
  expect(order.slice(0, 4).sort()).toEqual(["a", "a", "b", "c"]);
  expect(order).toHaveLength(5);
});
