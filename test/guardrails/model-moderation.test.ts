import { expect, test } from "bun:test";
import { ModelModeration } from "../../src/inference/call/guard/model-moderation.ts";
import { until } from "../support/until.ts";

const { signal } = new AbortController();

const saying = (flags: readonly boolean[]) => ({
  results: flags.map((flagged) => ({ flagged, categories: {}, category_scores: {} })),
  usage: undefined,
});

test("few texts of one organization are decided about at a time, and few wait", async () => {
  const { promise: may, resolve: go } = Promise.withResolvers<void>();
  let running = 0;
  let most = 0;
  const moderation = new ModelModeration(async () => {
    most = Math.max(most, ++running);
    await may;
    running--;
    return saying([false]);
  }, "model");
  const waiting = Array.from({ length: 8 + 128 }, () => moderation.passes("one", "text", signal));
  await until("as many run as may", async () => running === 8);
  await expect(moderation.passes("one", "text", signal)).rejects.toMatchObject({
    code: "moderation_unavailable",
  });
  const other = moderation.passes("other", "text", signal);
  await until("another's runs too", async () => running === 9);
  go();
  expect(new Set(await Promise.all([...waiting, other]))).toEqual(new Set([true]));
  expect(most).toBe(9);
});

test("a long text is decided about in pieces that overlap, and all of it", async () => {
  const seen: string[] = [];
  const moderation = new ModelModeration(async ({ input }) => {
    const texts = input as readonly string[];
    seen.push(...texts);
    return saying(texts.map((text) => text.includes("some harm done")));
  }, "model");
  for (const before of [0, 7_590, 7_995, 15_195, 200_000]) {
    const text = `${"x".repeat(before)}some harm done${"y".repeat(3)}`;
    expect(await moderation.passes("one", text, signal)).toBe(false);
  }
  expect(await moderation.passes("one", "x".repeat(300_000), signal)).toBe(true);
  expect(Math.max(...seen.map(({ length }) => length))).toBe(8_000);
});

test("who leaves ends the call of the model", async () => {
  const leaving = new AbortController();
  const moderation = new ModelModeration(
    ({ signal: aborted }) =>
      new Promise((_, reject) =>
        aborted.addEventListener("abort", () => reject(aborted.reason), { once: true }),
      ),
    "model",
  );
  const asked = moderation.passes("one", "text", leaving.signal);
  leaving.abort();
  await expect(asked).rejects.toMatchObject({ code: "client_closed_request" });
});

test("a model that does not answer decides nothing, within a bounded time", async () => {
  const moderation = new ModelModeration(
    ({ signal: aborted }) =>
      new Promise((_, reject) =>
        aborted.addEventListener("abort", () => reject(aborted.reason), { once: true }),
      ),
    "model",
  );
  await expect(moderation.passes("one", "text", signal)).rejects.toMatchObject({
    code: "moderation_unavailable",
  });
}, 60_000);
