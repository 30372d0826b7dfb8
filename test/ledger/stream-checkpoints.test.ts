import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  MAX_AHEAD_MS,
  MAX_AHEAD_TOKENS,
  StreamCheckpoints,
} from "../../src/inference/call/stream/charge.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { settled } from "../actors/fake-environment.ts";

const TICK_MS = 50;

/** A stream whose checkpoints are written by a test: what it received, delivered, and has durable. */
function watchedStream() {
  const clock = new VirtualClock(0);
  const writes: { tokens: number; end(isWritten: boolean): Promise<void> }[] = [];
  let receivedTokens = 0;
  let durableTokens = -1;
  const checkpoints = new StreamCheckpoints(
    () =>
      new Promise<void>((resolve, reject) => {
        const write = {
          tokens: receivedTokens,
          async end(isWritten: boolean) {
            writes.splice(writes.indexOf(write), 1);
            if (isWritten) {
              durableTokens = Math.max(durableTokens, write.tokens);
              resolve();
            } else reject(new Error("not written"));
            await settled();
          },
        };
        writes.push(write);
      }),
  );
  return {
    clock,
    checkpoints,
    writes,
    get durableTokens() {
      return durableTokens;
    },
    async pass(ms: number) {
      for (let left = ms; left > 0; left -= TICK_MS) {
        clock.advance(Math.min(left, TICK_MS));
        checkpoints.tick(clock.nowMs());
        await settled();
      }
    },
    receive(tokens: number): number {
      receivedTokens += tokens;
      return receivedTokens;
    },
  };
}

describe("what is delivered of a stream", () => {
  test("begins only when its first checkpoint is durable, and not at all where that is refused", async () => {
    const stream = watchedStream();
    let isCovered = false;
    const covering = stream.checkpoints.cover(stream.receive(1)).then(() => {
      isCovered = true;
    });
    await settled();
    expect(isCovered).toBe(false);
    await stream.writes[0]!.end(true);
    await covering;
    const refused = watchedStream();
    const failing = refused.checkpoints.cover(refused.receive(1));
    failing.catch(() => {});
    await refused.writes[0]!.end(false);
    expect(failing).rejects.toThrow("not written");
  });

  test("is never more than 256 tokens, and never longer than a second, ahead of what is durable", async () => {
    const step = fc.record({
      tokens: fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 400 })),
      gapMs: fc.oneof(fc.constant(0), fc.nat({ max: 300 }), fc.nat({ max: 1_500 })),
      writes: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 60 }), async (steps) => {
        const stream = watchedStream();
        const opening = stream.checkpoints.cover(stream.receive(1));
        await stream.writes[0]!.end(true);
        await opening;
        /** When each count of tokens was delivered. */
        const delivered: { tokens: number; atMs: number }[] = [];
        for (const { tokens, gapMs, writes } of steps) {
          await stream.pass(gapMs);
          if (writes && stream.writes.length > 0) await stream.writes[0]!.end(true);
          const received = stream.receive(tokens);
          let isAdmitted = false;
          const admitting = Promise.resolve(
            stream.checkpoints.admit(received, stream.clock.nowMs()),
          ).then(() => {
            isAdmitted = true;
          });
          await settled();
          while (!isAdmitted) {
            // A delivery that waits has a checkpoint under way to wait for.
            await stream.writes[0]!.end(true);
          }
          await admitting;
          const nowMs = stream.clock.nowMs();
          expect(received - Math.max(0, stream.durableTokens)).toBeLessThanOrEqual(
            MAX_AHEAD_TOKENS,
          );
          const oldest = delivered.find((one) => one.tokens > stream.durableTokens);
          if (oldest !== undefined) expect(nowMs - oldest.atMs).toBeLessThan(MAX_AHEAD_MS);
          delivered.push({ tokens: received, atMs: nowMs });
        }
      }),
      { numRuns: 200 },
    );
  });

  test("becomes durable half a second later although nothing new comes", async () => {
    const stream = watchedStream();
    const opening = stream.checkpoints.cover(stream.receive(1));
    await stream.writes[0]!.end(true);
    await opening;
    await stream.checkpoints.admit(stream.receive(5), stream.clock.nowMs());
    expect(stream.writes).toEqual([]);
    await stream.pass(500);
    expect(stream.writes).toHaveLength(1);
    await stream.writes[0]!.end(true);
    await stream.pass(5_000);
    expect(stream.writes).toEqual([]);
  });

  test("is tried again where a checkpoint was refused that nobody waited for", async () => {
    const stream = watchedStream();
    const opening = stream.checkpoints.cover(stream.receive(1));
    await stream.writes[0]!.end(true);
    await opening;
    await stream.checkpoints.admit(stream.receive(5), stream.clock.nowMs());
    await stream.pass(500);
    await stream.writes[0]!.end(false);
    await stream.pass(TICK_MS);
    expect(stream.writes).toHaveLength(1);
  });
});
