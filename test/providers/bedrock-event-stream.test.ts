import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type EventMessage,
  EventStreamDecoder,
} from "../../src/providers/bedrock/event-stream-decoder.ts";
import { encodedMessage, event, framedMessage } from "../support/aws-event-stream.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { bedrockRecordings } from "../upstream/bedrock-recordings.ts";
import { randomPieceLength, seededRandom } from "../upstream/random.ts";

const binary = bedrockRecordings().filter(({ isBinary }) => isBinary);

interface Kept {
  readonly headers: Record<string, string>;
  readonly payload: string;
}

/** The messages that a stream holds, if it comes in pieces of these lengths. */
function decoded(bytes: Uint8Array, length: () => number): Kept[] {
  const decoder = new EventStreamDecoder();
  const kept: Kept[] = [];
  const keep = ({ headers, payload }: EventMessage) =>
    void kept.push({
      headers: Object.fromEntries(headers),
      payload: Buffer.from(payload).toString("latin1"),
    });
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(at + Math.max(1, length()), bytes.length);
    // In memory of its own, which is overwritten afterwards, as a socket's may be.
    const piece = Uint8Array.from(bytes.subarray(at, end));
    decoder.push(piece, keep);
    piece.fill(0xff);
    at = end;
  }
  decoder.end();
  return kept;
}

describe("recorded streams", () => {
  test.each(binary)("$name is the same messages wherever it is cut", ({ bytes }) => {
    const whole = decoded(bytes, () => bytes.length);
    expect(whole.length).toBeGreaterThan(5);
    const again = whole.map(({ headers, payload }) =>
      encodedMessage(headers, Buffer.from(payload, "latin1")),
    );
    expect(Buffer.concat(again).equals(bytes)).toBeTrue();
    expect(decoded(bytes, () => 1)).toEqual(whole);
    for (let seed = 1; seed <= 20; seed++) {
      const random = seededRandom(seed);
      expect(decoded(bytes, () => randomPieceLength(random))).toEqual(whole);
    }
  });

  test("a message with any of its bytes changed is refused, or waits for more bytes", () => {
    const bytes = event("contentBlockDelta", { delta: { text: "hello" } });
    for (let at = 0; at < bytes.length; at++) {
      for (const mask of [0x01, 0x80]) {
        const changed = Uint8Array.from(bytes);
        changed[at]! ^= mask;
        expect(() => decoded(changed, () => changed.length)).toThrow();
      }
    }
  });

  test("a stream that ends in the middle of a message is rejected, wherever it is cut", () => {
    const bytes = event("messageStop", { stopReason: "end_turn" });
    for (let length = 1; length < bytes.length; length++) {
      expect(() => decoded(bytes.subarray(0, length), () => 7)).toThrow("in the middle");
    }
  });
});

test("messages of any size come through, cut anywhere", () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 5_000 }), { maxLength: 6 }),
      fc.integer(),
      (payloads, seed) => {
        const random = seededRandom(seed);
        const bytes = Buffer.concat(payloads.map((one) => encodedMessage({ name: "é" }, one)));
        expect(decoded(bytes, () => randomPieceLength(random))).toEqual(
          payloads.map((one) => ({
            headers: { name: "é" },
            payload: Buffer.from(one).toString("latin1"),
          })),
        );
      },
    ),
    { numRuns: 50 },
  );
});

test("a long message in small pieces costs what it holds, not its square", () => {
  const bytes = encodedMessage({}, Buffer.alloc(8 * 1024 * 1024, "a"));
  const decoder = new EventStreamDecoder();
  const elapsedMs = startStopwatch();
  let messages = 0;
  for (let at = 0; at < bytes.length; at += 1_024) {
    decoder.push(bytes.subarray(at, at + 1_024), () => messages++);
  }
  expect(messages).toBe(1);
  // 8,192 copies of half of it would take tens of seconds.
  expect(elapsedMs()).toBeLessThan(5_000);
});

describe("headers", () => {
  const named = (name: string, type: number, ...value: number[]) =>
    Buffer.from([name.length, ...Buffer.from(name), type, ...value]);
  const zeros = (count: number) => Array<number>(count).fill(0);

  test("of all types are passed over, but for texts", () => {
    const headers = Buffer.concat([
      named("true", 0),
      named("false", 1),
      named("byte", 2, 1),
      named("short", 3, ...zeros(2)),
      named("int", 4, ...zeros(4)),
      named("long", 5, ...zeros(8)),
      named("bytes", 6, 0, 3, ...zeros(3)),
      named("text", 7, 0, 2, 0x68, 0x69),
      named("time", 8, ...zeros(8)),
      named("uuid", 9, ...zeros(16)),
      named(":event-type", 7, 0, 1, 0x78),
    ]);
    expect(decoded(framedMessage(headers, "{}"), () => 3)).toEqual([
      { headers: { text: "hi", ":event-type": "x" }, payload: "{}" },
    ]);
  });

  test.each([
    ["of a type that there is not", named("a", 10)],
    ["that end in a name", Buffer.from([9, 0x61])],
    ["that end before their type", Buffer.from([1, 0x61])],
    ["whose value ends too early", named("a", 7, 0, 9, 0x61)],
    ["whose number ends too early", named("a", 5, 0)],
  ])("%s break the stream", (_what, headers) => {
    expect(() => decoded(framedMessage(headers, "{}"), () => 100)).toThrow("headers");
  });
});

test.each([
  ["more than a payload may have", 12 + 4 + 24 * 1024 * 1024 + 1, 0],
  ["headers that are longer than the message", 40, 100],
  ["longer headers than are allowed", 200_000, 131_073],
])("lengths with the right checksum, but %s, are refused at once", (_what, total, headers) => {
  const message = framedMessage(Buffer.alloc(0), "");
  const prelude = Buffer.alloc(12);
  prelude.writeUInt32BE(total, 0);
  prelude.writeUInt32BE(headers, 4);
  prelude.writeUInt32BE(Bun.hash.crc32(prelude.subarray(0, 8)), 8);
  expect(() => decoded(Buffer.concat([message, prelude]), () => 5)).toThrow("out of range");
});
