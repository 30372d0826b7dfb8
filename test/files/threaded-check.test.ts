import { afterAll, expect, test } from "bun:test";
import { CheckingThread, type ThreadedCheck } from "../../src/jobs/files/threaded-check.ts";

const GREEDY_UPLOADS = 32;
const MAX_LOAD_MS = 60_000;
const losses: unknown[] = [];
const thread = new CheckingThread((error) => losses.push(error));
afterAll(() => thread.close());

const line = JSON.stringify({
  messages: [
    { role: "user", content: "x".repeat(200_000) },
    { role: "assistant", content: "y" },
  ],
});
const piece = new TextEncoder().encode(`${line}\n`);

test(
  "pieces of uploads are checked in turn, however many uploads one organization has",
  async () => {
    const order: string[] = [];
    const write = (owner: string, check: ThreadedCheck) =>
      check.write(piece).then(() => order.push(owner));
    const begin = (owner: string) => thread.begin(owner, "fine-tune")!;
    const greedy = Array.from({ length: GREEDY_UPLOADS }, () => begin("greedy"));
    const other = begin("other");
    await Promise.all([...greedy, other].map((check) => check.passed()));
    await Promise.all([...greedy.map((check) => write("greedy", check)), write("other", other)]);
    // The piece that is under way, one that comes before it in turn, and its own.
    expect(order.indexOf("other")).toBeLessThanOrEqual(2);
    expect(order).toHaveLength(GREEDY_UPLOADS + 1);
    for (const check of [...greedy, other]) check.drop();
    expect(losses).toEqual([]);
  },
  MAX_LOAD_MS,
);
