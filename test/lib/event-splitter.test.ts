import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { EventSplitter, latin1OfText, textOfLatin1 } from "../../src/lib/event-splitter.ts";
import { startStopwatch } from "../support/stopwatch.ts";

const MAX_BYTES = 1_000;

/** The data of the events of a stream that comes in these pieces. */
function eventsOf(pieces: readonly (string | Uint8Array)[], maxBytes = MAX_BYTES): string[] {
  const splitter = new EventSplitter(maxBytes);
  const events: string[] = [];
  const take = (data: string) => void events.push(textOfLatin1(data));
  for (const piece of pieces) splitter.push(Buffer.from(piece as string), take);
  splitter.end(take);
  return events;
}

/** The stream cut at these positions. */
function cutAt(stream: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const positions = [...new Set(cuts.map((cut) => cut % (stream.length + 1)))].sort(
    (a, b) => a - b,
  );
  return [...positions, stream.length].map((end, i) =>
    stream.subarray(i === 0 ? 0 : positions[i - 1], end),
  );
}

describe("events", () => {
  test.each([
    ["one line", "data: a\n\n", ["a"]],
    ["several", "data: a\n\ndata: b\n\n", ["a", "b"]],
    ["without the space", "data:a\n\n", ["a"]],
    ["with two spaces", "data:  a\n\n", [" a"]],
    ["several lines of data", "data: a\ndata: b\n\n", ["a\nb"]],
    ["an empty line of data", "data\ndata: b\n\n", ["\nb"]],
    ["other fields", "event: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]],
    ["a field behind the data", "data: a\nid: 1\n\n", ["a"]],
    ["comments", ": hello\n\n:\n\ndata: a\n\n", ["a"]],
    ["blank lines between them", "\n\n\ndata: a\n\n\n\n\ndata: b\n\n", ["a", "b"]],
    ["line ends of carriage return and line feed", "data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]],
    ["line ends of carriage returns", "data: a\r\rdata: b\r\r", ["a", "b"]],
    ["mixed line ends", "data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", ["a", "b", "c"]],
    ["a byte order mark", "\ufeffdata: a\n\n", ["a"]],
    ["what ends without a blank line", "data: a\n\ndata: b", ["a", "b"]],
    ["what ends with half a blank line", "data: a\n\ndata: b\r", ["a", "b"]],
    ["nothing", "", []],
    ["characters of several bytes", "data: äöü€😀\n\n", ["äöü€😀"]],
  ] as [string, string, string[]][])("are found: %s", (_, stream, expected) => {
    expect(eventsOf([stream])).toEqual(expected);
    expect(eventsOf(cutAt(Buffer.from(stream), [...Buffer.from(stream).keys()]))).toEqual(expected);
  });

  test("are the same wherever the network cuts the stream", () => {
    const line = fc.oneof(
      fc.constantFrom(
        "data: a",
        "data:b",
        "data",
        ": comment",
        "event: x",
        "",
        "data: €😀",
        "\ufeffdata: z",
      ),
      fc
        .string({ unit: "binary", maxLength: 20 })
        .map((text) => `data: ${text.replace(/[\r\n]/g, "")}`),
    );
    const stream = fc
      .array(fc.tuple(line, fc.constantFrom("\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\r\r")))
      .map((lines) => Buffer.from(lines.flat().join("")));
    fc.assert(
      fc.property(stream, fc.array(fc.nat({ max: 5_000 })), (bytes, cuts) => {
        expect(eventsOf(cutAt(bytes, cuts), 100_000)).toEqual(eventsOf([bytes], 100_000));
      }),
      { numRuns: 500 },
    );
  });

  test.each(["\n\n", "\r\n\r\n", "\r\r", "\n\r", "\r\n\r"])(
    "are told as soon as the blank line behind them has come: %j",
    (blankLine) => {
      const events: string[] = [];
      const splitter = new EventSplitter(MAX_BYTES);
      for (const data of ["a", "b", "[DONE]"]) {
        splitter.push(Buffer.from(`data: ${data}${blankLine}`), (one) => void events.push(one));
        expect(events.at(-1)).toBe(data);
      }
      expect(events).toEqual(["a", "b", "[DONE]"]);
    },
  );

  test("are offered in runs, and only where they are whole", () => {
    const runs: string[] = [];
    const events: string[] = [];
    const splitter = new EventSplitter(MAX_BYTES);
    const takeRun = (text: string, start: number): number => {
      let position = start;
      while (text.startsWith("data: r", position)) {
        const end = text.indexOf("\n\n", position);
        if (end < 0) break;
        runs.push(text.slice(position, end));
        position = end + 2;
      }
      return position;
    };
    for (const piece of [
      "data: r1\n\ndata: r2\n\ndata: x\n\nda",
      "ta: r3",
      "\n",
      "\ndata: r4\n\n",
    ]) {
      splitter.push(Buffer.from(piece), (data) => void events.push(data), takeRun);
    }
    expect(runs).toEqual(["data: r1", "data: r2", "data: r3", "data: r4"]);
    expect(events).toEqual(["x"]);
  });
});

describe("an event beyond the bound", () => {
  test("is refused, in one piece or in many", () => {
    expect(() => eventsOf([`data: ${"x".repeat(MAX_BYTES)}`])).toThrow(RangeError);
    expect(() => eventsOf(["data: ", ..."x".repeat(MAX_BYTES)])).toThrow(RangeError);
  });

  test("does not cost more with each piece that comes of it", () => {
    const pieces = 60_000;
    const piece = Buffer.alloc(256, "x");
    const splitter = new EventSplitter(pieces * piece.length);
    const elapsedMs = startStopwatch();
    for (let i = 0; i < pieces; i++) splitter.push(piece, () => {});
    // Searched from its beginning with each piece, it would take minutes.
    expect(elapsedMs()).toBeLessThan(2_000);
    expect(() => splitter.push(piece, () => {})).toThrow(RangeError);
  });
});

test("text survives as its bytes kept as characters", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      expect(textOfLatin1(latin1OfText(text))).toBe(text);
      expect(latin1OfText(text)).toBe(Buffer.from(text).toString("latin1"));
    }),
  );
});
