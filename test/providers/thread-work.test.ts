import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import { BodyRender } from "../../src/providers/chat-body.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import {
  AnswerRead,
  exportOf,
  resultOf,
  type ThreadOutcome,
  threadOutcome,
  transferOfOutcome,
} from "../../src/providers/thread-work.ts";

const root = join(import.meta.dir, "../../src/providers");

async function modulesWith(text: string): Promise<string[]> {
  const found: string[] = [];
  for await (const file of new Glob("**/*.ts").scan({ cwd: root, absolute: true })) {
    const source = await Bun.file(file).text();
    // Without comments: the interface shows an example.
    if (source.replaceAll(/^\s*\*.*$/gm, "").includes(text)) found.push(file);
  }
  return found;
}

/** What passes between threads, as it arrives. */
const passed = (outcome: ThreadOutcome) =>
  structuredClone(outcome, { transfer: transferOfOutcome(outcome) });

test("a thread finds each wire's render of bodies, and each reader of answers, in the module it names", async () => {
  const renders = await modulesWith("new BodyRender(");
  const readers = await modulesWith("new AnswerRead(");
  expect(renders.length).toBeGreaterThanOrEqual(3);
  expect(readers.length).toBeGreaterThanOrEqual(5);
  for (const file of renders) {
    const url = Bun.pathToFileURL(file).href;
    expect((await exportOf<BodyRender<unknown, unknown>>(url, BodyRender)).module).toBe(url);
  }
  for (const file of readers) {
    const url = Bun.pathToFileURL(file).href;
    expect((await exportOf<AnswerRead<unknown, unknown>>(url, AnswerRead)).module).toBe(url);
  }
});

test("a module without a render is an error, whatever else it exports", async () => {
  const url = new URL("../../src/providers/chat-body.ts", import.meta.url).href;
  await expect(exportOf(url, BodyRender)).rejects.toThrow("exports 0 of BodyRender");
});

test("a failure passes between threads whole, but for its cause", () => {
  const failure = new ProviderFailure("rejected", "too odd", {
    status: 400,
    retryAfterMs: 7,
    param: "messages.0",
    isTooLong: true,
    cause: new Error("not for others"),
  });
  const outcome = passed(
    threadOutcome(() => {
      throw failure;
    }),
  );
  const arrived = (() => {
    try {
      return resultOf(outcome);
    } catch (error) {
      return error;
    }
  })();
  expect(arrived).toBeInstanceOf(ProviderFailure);
  const { kind, message, status, retryAfterMs, param, isTooLong, cause } =
    arrived as ProviderFailure;
  expect({ kind, message, status, retryAfterMs, param, isTooLong, cause }).toEqual({
    ...{ kind: "rejected", message: "too odd", status: 400, retryAfterMs: 7 },
    ...{ param: "messages.0", isTooLong: true, cause: undefined },
  });
});

test("any other error is the thread's to report", () => {
  expect(() =>
    threadOutcome(() => {
      throw new TypeError("a fault of ours");
    }),
  ).toThrow("a fault of ours");
});

test("a body of text comes as bytes, with what stands beside it", () => {
  const result = resultOf<{ body: Uint8Array; beta: string }>(
    passed(threadOutcome(() => ({ body: "Grüße", beta: "b" }))),
  );
  expect(new TextDecoder().decode(result.body)).toBe("Grüße");
  expect(result.beta).toBe("b");
});
