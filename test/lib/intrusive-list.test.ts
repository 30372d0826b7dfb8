import { expect, test } from "bun:test";
import fc from "fast-check";
import { IntrusiveList, type ListNode } from "../../src/lib/intrusive-list.ts";

interface Item extends ListNode<Item> {
  readonly name: number;
}

function namesOf(order: IntrusiveList<Item>): number[] {
  const names: number[] = [];
  for (let item = order.oldest; item !== undefined; item = item.newer) names.push(item.name);
  return names;
}

test("items stand in the order of their last use, whatever is put in, used and taken out", () => {
  const step = fc.tuple(fc.constantFrom("use", "use", "remove"), fc.integer({ min: 0, max: 5 }));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const order = new IntrusiveList<Item>();
      const items = new Map<number, Item>();
      let expected: number[] = [];
      for (const [what, name] of steps) {
        const item = items.get(name);
        expected = expected.filter((other) => other !== name);
        if (what === "remove") {
          if (item !== undefined) order.remove(item);
          items.delete(name);
        } else {
          if (item === undefined) {
            const added: Item = { name, older: undefined, newer: undefined };
            items.set(name, added);
            order.add(added);
          } else order.renew(item);
          expected.push(name);
        }
        expect(namesOf(order)).toEqual(expected);
      }
    }),
  );
});
