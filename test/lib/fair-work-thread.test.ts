import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { GatewayError } from "../../src/lib/errors.ts";
import { FairWorkThread, type FairWorkThreadOptions } from "../../src/lib/work-thread.ts";

const folder = mkdtempSync(join(tmpdir(), "fair-work-thread-"));
afterAll(() => rmSync(folder, { recursive: true }));

const library = JSON.stringify(
  Bun.fileURLToPath(new URL("../../src/lib/work-thread.ts", import.meta.url)),
);
const path = join(folder, "thread.ts");
writeFileSync(
  path,
  `import { serveCalls } from ${library};
serveCalls((call) => {
  if (call === "hang") for (;;) {}
  if (call === "crash") process.exit(3);
  if (call.startsWith("slow")) Bun.sleepSync(20);
  return call;
});`,
);

function thread(options: Partial<FairWorkThreadOptions> = {}) {
  const losses: unknown[] = [];
  const work = new FairWorkThread({
    script: pathToFileURL(path),
    deadlineMs: 20_000,
    maxWaiting: 100,
    maxWaitingOfOne: 50,
    maxWaitMs: 20_000,
    onLost: (error) => losses.push(error),
    ...options,
  });
  return { work, losses };
}

const never = new AbortController().signal;
const codeOf = (call: Promise<unknown>) =>
  call.then(String, (error: unknown) =>
    error instanceof GatewayError ? `${error.code} ${error.retryAfterSeconds}` : String(error),
  );

test("owners are served in turn, however much one of them has waiting", async () => {
  const { work } = thread();
  const order: string[] = [];
  const call = async (owner: string, name: string) =>
    order.push(await work.call<string>(owner, name, never));
  const greedy = ["slow a1", "slow a2", "slow a3", "slow a4"].map((name) => call("a", name));
  await Promise.all([...greedy, call("b", "b1"), call("c", "c1")]);
  // The first one runs before any other waits.
  expect(order).toEqual(["slow a1", "slow a2", "b1", "c1", "slow a3", "slow a4"]);
  work.close();
});

test.each([
  ["hangs", "hang"],
  ["crashes", "crash"],
])("a call that %s the thread fails alone: those that wait are served", async (_, faulty) => {
  const { work, losses } = thread({ deadlineMs: 1_500 });
  expect(await work.call<string>("a", "ready", never)).toBe("ready");
  const calls = [
    codeOf(work.call("a", faulty, never)),
    codeOf(work.call("a", "own", never)),
    codeOf(work.call("b", "other", never)),
  ];
  expect(await Promise.all(calls)).toEqual(["overloaded 1", "own", "other"]);
  expect(losses).toHaveLength(1);
  work.close();
});

test("so many calls may wait, so many of one owner, and for so long", async () => {
  const { work } = thread({ maxWaiting: 4, maxWaitingOfOne: 3, maxWaitMs: 300, deadlineMs: 1_500 });
  expect(await work.call<string>("a", "ready", never)).toBe("ready");
  const running = codeOf(work.call("a", "hang", never));
  await Bun.sleep(0);
  const waiting = [1, 2, 3].map((n) => codeOf(work.call("a", `a${n}`, never)));
  expect(await codeOf(work.call("a", "a4", never))).toBe("overloaded 1");
  const other = codeOf(work.call("b", "b1", never));
  expect(await codeOf(work.call("c", "c1", never))).toBe("overloaded 1");
  const refusals = await Promise.all([...waiting, other]);
  expect(new Set(refusals)).toEqual(new Set(["overloaded 1"]));
  expect(await running).toBe("overloaded 1");
  expect(await codeOf(work.call("a", "again", never))).toBe("again");
  work.close();
});

test("a call whose caller goes away leaves the queue, and is not run", async () => {
  const { work } = thread();
  const controller = new AbortController();
  const first = codeOf(work.call("a", "slow a", never));
  const left = codeOf(work.call("a", "crash", controller.signal));
  controller.abort(new Error("gone"));
  expect(await left).toBe("Error: gone");
  expect(await first).toBe("slow a");
  expect(await codeOf(work.call("a", "after", never))).toBe("after");
  expect(await codeOf(work.call("a", "crash", controller.signal))).toBe("Error: gone");
  work.close();
});

test("a closed thread refuses what waits and what comes", async () => {
  const { work } = thread();
  const calls = [1, 2].map((n) => codeOf(work.call("a", `slow ${n}`, never)));
  await Bun.sleep(0);
  work.close();
  expect(await Promise.all(calls)).toEqual(["overloaded 1", "overloaded 1"]);
  expect(await codeOf(work.call("a", "later", never))).toBe("overloaded 1");
});
