import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { GatewayError } from "../../src/lib/errors.ts";
import { WorkThread } from "../../src/lib/work-thread.ts";

const folder = mkdtempSync(join(tmpdir(), "work-thread-"));
afterAll(() => rmSync(folder, { recursive: true }));

const library = (name: string) =>
  JSON.stringify(Bun.fileURLToPath(new URL(`../../src/lib/${name}.ts`, import.meta.url)));
const path = join(folder, "thread.ts");
writeFileSync(
  path,
  `import { serveCalls } from ${library("work-thread")};
import { GatewayError } from ${library("errors")};
serveCalls((call) => {
  if (call === "refuse") throw new GatewayError("invalid_body", "No.", { param: "x" });
  if (call === "fail") throw new TypeError("broken");
  if (call === "hang") for (;;) {}
  if (call === "rest") Bun.sleepSync(3_200);
  if (call === "crash") process.exit(3);
  return call;
});`,
);

function thread(deadlineMs = 20_000) {
  const losses: unknown[] = [];
  const script = pathToFileURL(path);
  return { losses, work: new WorkThread({ script, deadlineMs, onLost: (e) => losses.push(e) }) };
}

const codeOf = (call: Promise<unknown>) =>
  call.then(
    () => "answered",
    (error: unknown) => (error instanceof GatewayError ? error.code : String(error)),
  );

test("calls are answered in order, refusals and faults as what they are", async () => {
  const { work } = thread();
  const [one, refused, failed, two] = await Promise.all([
    work.call<number>(1),
    work.call("refuse").catch((error: GatewayError) => error),
    codeOf(work.call("fail")),
    work.call<number>(2),
  ]);
  expect([one, two]).toEqual([1, 2]);
  expect(refused).toBeInstanceOf(GatewayError);
  expect(refused).toMatchObject({ code: "invalid_body", message: "No.", param: "x" });
  expect(failed).toContain("broken");
  work.close();
});

test("a thread that hangs is replaced, and no call is left without an answer", async () => {
  const { work, losses } = thread(1_500);
  expect(await work.call<number>(1)).toBe(1);
  const waiting = [codeOf(work.call("hang")), codeOf(work.call(2))];
  expect(await Promise.all(waiting)).toEqual(["overloaded", "overloaded"]);
  expect(losses).toHaveLength(1);
  expect(await work.call<number>(3)).toBe(3);
  work.close();
});

test("a thread that ends by itself is replaced, and no call is left without an answer", async () => {
  const { work, losses } = thread();
  const waiting = [codeOf(work.call("crash")), codeOf(work.call(2))];
  expect(await Promise.all(waiting)).toEqual(["overloaded", "overloaded"]);
  expect(losses).toHaveLength(1);
  expect(await work.call<number>(3)).toBe(3);
  work.close();
});

test("the first call of a thread has twice the time, because the thread still loads", async () => {
  const { work, losses } = thread(3_000);
  expect(await codeOf(work.call("rest"))).toBe("answered");
  expect(losses).toEqual([]);
  expect(await codeOf(work.call("rest"))).toBe("overloaded");
  work.close();
});
