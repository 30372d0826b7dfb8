import { expect, test } from "bun:test";
import { Redis } from "ioredis";
import { findTestRedis } from "./redis.ts";

const redis = await findTestRedis();

test.skipIf(redis === undefined)("the Redis that tests are given answers", async () => {
  const client = new Redis(redis!.url, { lazyConnect: true, maxRetriesPerRequest: 1 });
  try {
    await client.connect();
    expect(await client.ping()).toBe("PONG");
  } finally {
    client.disconnect();
  }
});
