import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  BUCKET_MS,
  bucketsOf,
  SlidingWindow,
  WINDOW_MS,
} from "../../src/platform/cluster/sliding-window.ts";

/** The same, kept in the plainest way: every admission by itself. */
class PlainWindow {
  admissionsMs: number[] = [];

  expire(nowMs: number): void {
    this.admissionsMs = this.admissionsMs.filter((ms) => this.#leaveMs(ms) > nowMs);
  }

  leavesMs(count: number): number | undefined {
    const ms = this.admissionsMs[count - 1];
    return ms === undefined ? undefined : this.#leaveMs(ms);
  }

  counts(): [number, number][] {
    const buckets = this.admissionsMs.map(bucketOf);
    return [...new Set(buckets)].map((bucket) => [
      bucket,
      buckets.filter((one) => one === bucket).length,
    ]);
  }

  #leaveMs(ms: number): number {
    const lastMs = this.admissionsMs.findLast((other) => bucketOf(other) === bucketOf(ms));
    return lastMs! + WINDOW_MS + 1;
  }
}

function bucketOf(ms: number): number {
  return Math.floor(ms / BUCKET_MS);
}

test("a bucket counts until its last admission has left, however long the window is in use", () => {
  const gapMs = fc.oneof(
    fc.integer({ min: 0, max: 120 }),
    fc.integer({ min: 0, max: 2_000 }),
    fc.constant(WINDOW_MS),
  );
  fc.assert(
    fc.property(fc.array(gapMs, { minLength: 150, maxLength: 300 }), (gapsMs) => {
      const window = new SlidingWindow("key", bucketsOf(WINDOW_MS), 0);
      const plain = new PlainWindow();
      let nowMs = 1_700_000_000_000;
      for (const gapMs of gapsMs) {
        nowMs += gapMs;
        window.expire(nowMs);
        plain.expire(nowMs);
        window.add(nowMs);
        plain.admissionsMs.push(nowMs);
        const { length } = plain.admissionsMs;
        expect(window.total).toBe(length);
        for (const count of [1, length >> 1, length, length + 1]) {
          if (count > 0) expect(window.leavesMs(count)).toBe(plain.leavesMs(count));
        }
      }
      expect([...window.counts()]).toEqual(plain.counts());
      expect(window.newestBucket).toBe(bucketOf(nowMs));
      window.expire(nowMs + WINDOW_MS + 1);
      expect(window.total).toBe(0);
      expect(window.newestBucket).toBeUndefined();
    }),
    { numRuns: 30 },
  );
});
