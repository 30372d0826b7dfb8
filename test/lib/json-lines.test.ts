import { describe, expect, test } from "bun:test";
import { JsonLineError, parseJsonLine, readLines } from "../../src/lib/json-lines.ts";
import { textStream } from "../contracts/fine-tuning-providers.ts";

const MAX_LINE_BYTES = 40;

async function linesOf(text: string | Uint8Array, pieceBytes = 7): Promise<[number, unknown][]> {
  const stream =
    typeof text === "string"
      ? textStream(text, pieceBytes)
      : new Blob([text as Uint8Array<ArrayBuffer>]).stream();
  const lines: [number, unknown][] = [];
  const decoder = new TextDecoder("utf-8", { fatal: true });
  for await (const { line, bytes } of readLines(stream, MAX_LINE_BYTES)) {
    const value = parseJsonLine(line, () => decoder.decode(bytes));
    if (value !== undefined) lines.push([line, value]);
  }
  return lines;
}

const faultOf = async (text: string | Uint8Array) => {
  const error = await linesOf(text).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(JsonLineError);
  return (error as JsonLineError).message;
};

describe("a JSONL text", () => {
  test("gives each line with its number, however it is cut", async () => {
    const text = '{"a":1}\n\n  \n"é√𝄞"\r\n[]';
    for (let piece = 1; piece < 12; piece++) {
      expect(await linesOf(text, piece)).toEqual([
        [1, { a: 1 }],
        [4, "é√𝄞"],
        [5, []],
      ]);
    }
    expect(await linesOf("")).toEqual([]);
    expect(await linesOf("\n\n")).toEqual([]);
  });

  test("names the line that is no JSON, no UTF-8, or too long", async () => {
    expect(await faultOf("1\n{\n")).toBe("line 2 is not valid JSON");
    expect(await faultOf(new Uint8Array([49, 10, 0xff, 10]))).toBe("line 2 is not valid UTF-8");
    const long = `"${"x".repeat(MAX_LINE_BYTES)}"`;
    expect(await faultOf(`1\n2\n${long}\n`)).toBe("line 3 has more than 40 bytes");
    expect(await faultOf(long)).toBe("line 1 has more than 40 bytes");
    expect(await linesOf(`"${"x".repeat(MAX_LINE_BYTES - 2)}"`)).toHaveLength(1);
  });

  test("is read no further than it is asked for", async () => {
    let isCancelled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new TextEncoder().encode("1\n")),
      cancel() {
        isCancelled = true;
      },
    });
    for await (const { line } of readLines(endless, MAX_LINE_BYTES)) if (line === 3) break;
    expect(isCancelled).toBe(true);
  });
});
