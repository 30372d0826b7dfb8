import { describe, expect, test } from "bun:test";
import { PacedReader } from "../../src/http/multipart.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";

const PIECE = new Uint8Array(10_000);

/** Reads pieces that come so long after they are asked for; returns how many came, and why no more did. */
async function readSlowly(options: {
  pieces: number;
  pauseMs: number;
  minBytesPerSecond: number;
  /** What the reader of the pieces does with each. */
  busyMs?: number;
}) {
  const clock = new VirtualClock();
  let left = options.pieces;
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        clock.advance(options.pauseMs);
        if (left-- > 0) controller.enqueue(PIECE);
        else controller.close();
      },
    },
    { highWaterMark: 0 },
  );
  const { minBytesPerSecond } = options;
  const reader = new PacedReader(body, { clock, minBytesPerSecond });
  for (let read = 0; ; read++) {
    try {
      if ((await reader.read()) === undefined) return { read, error: undefined };
      clock.advance(options.busyMs ?? 0);
    } catch (error) {
      await reader.cancel();
      return { read, error: (error as GatewayError).message };
    }
  }
}

describe("a body", () => {
  test("that comes at the least rate is read to its end, however long that takes", async () => {
    const outcome = await readSlowly({ pieces: 5_000, pauseMs: 10_000, minBytesPerSecond: 1_000 });
    expect(outcome).toEqual({ read: 5_000, error: undefined });
  });

  test("that comes in drops is given up when it is a minute behind", async () => {
    const outcome = await readSlowly({ pieces: 5_000, pauseMs: 20_000, minBytesPerSecond: 1_000 });
    expect(outcome).toEqual({ read: 6, error: "The request body arrives too slowly." });
  });

  test("of a client that falls silent is given up after a minute, though it was ahead", async () => {
    const clock = new VirtualClock();
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(PIECE),
    });
    const reader = new PacedReader(body, { clock, minBytesPerSecond: 1 });
    await reader.read();
    let error: unknown;
    const reading = reader.read().catch((thrown: unknown) => {
      error = thrown;
    });
    clock.advance(59_999);
    await Promise.resolve();
    expect(error).toBeUndefined();
    clock.advance(1);
    await reading;
    expect((error as GatewayError).message).toBe("The request body arrives too slowly.");
    await reader.cancel();
  });

  test("is not slow for the time in which nobody asks for more", async () => {
    const outcome = await readSlowly({
      pieces: 100,
      pauseMs: 1_000,
      minBytesPerSecond: 10_000,
      busyMs: 3_600_000,
    });
    expect(outcome).toEqual({ read: 100, error: undefined });
  });

  test("whose client goes away is told as that", async () => {
    const body = new ReadableStream<Uint8Array>({ pull: () => Promise.reject(new Error("reset")) });
    const reader = new PacedReader(body, { clock: new VirtualClock(), minBytesPerSecond: 1 });
    const error = await reader.read().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(GatewayError);
    expect((error as GatewayError).code).toBe("client_closed_request");
  });
});
