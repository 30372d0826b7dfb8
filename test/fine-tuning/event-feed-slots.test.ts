import { expect, test } from "bun:test";
import { EventFeeds, MAX_FEEDS_OF_ORGANIZATION } from "../../src/jobs/fine-tuning/event-feed.ts";
import { systemClock } from "../../src/lib/clock.ts";

test("one organization's event streams leave room for those of others, and make room when they end", async () => {
  const feeds = new EventFeeds({
    sql: undefined as never,
    clock: systemClock,
    keepaliveMs: 1_000,
    onError() {},
  });
  const follower = { signal: AbortSignal.abort(), assertAllowed: async () => {} };
  const open = (organizationId: string) => feeds.follow(organizationId, "job", 0, follower);
  const all = Array.from({ length: MAX_FEEDS_OF_ORGANIZATION }, () => open("org_one"));
  expect(() => open("org_one")).toThrow("Too many event streams are open.");
  const other = open("org_two");
  for (const feed of [...all, other]) expect(await Array.fromAsync(feed)).toEqual([]);
  for (const feed of Array.from(all, () => open("org_one"))) await Array.fromAsync(feed);
});
