import { expect, test } from "bun:test";
import { MemoryWakes } from "../../src/cluster/wake-board.ts";
import { describeWakes } from "./wakes.ts";

describeWakes(() => {
  const errors: unknown[] = [];
  return { instances: [new MemoryWakes((error) => errors.push(error))], errors };
});

test("more wake-ups than fit into one turn are lost, and later ones are heard", async () => {
  const wakes = new MemoryWakes(() => {});
  let heard = 0;
  wakes.onWake("kind", () => heard++);
  for (let i = 0; i < 25_000; i++) wakes.wake("kind", `id ${i}`);
  await Promise.resolve();
  expect(heard).toBe(10_000);
  wakes.wake("kind", "later");
  await Promise.resolve();
  expect(heard).toBe(10_001);
});
