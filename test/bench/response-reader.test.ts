import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { RequestReader } from "./request-reader.ts";
import { ResponseReader } from "./response-reader.ts";

const BODY = "data: one\n\ndata: two\n\ndata: [DONE]\n\n";
const EXPECTED = { bodyBytes: BODY.length, ending: Buffer.from("[DONE]\n\n") };

function withLength(body: string, status = "200 OK"): Buffer {
  return Buffer.from(`HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\nx: y\r\n\r\n${body}`);
}

function chunked(body: string, chunkBytes: number): Buffer {
  let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (let at = 0; at < body.length; at += chunkBytes) {
    const chunk = body.slice(at, at + chunkBytes);
    text += `${chunk.length.toString(16)}\r\n${chunk}\r\n`;
  }
  return Buffer.from(`${text}0\r\n\r\n`);
}

/** Whether the answer was found whole at its last byte and not before, and what was made of it. */
function read(reader: ResponseReader, answer: Buffer, cuts: readonly number[]) {
  const places = [...new Set(cuts.map((cut) => cut % answer.length))].sort((a, b) => a - b);
  const parts = [0, ...places].map((start, index) => answer.subarray(start, places[index]));
  const whole = parts.map((part) => reader.push(part));
  return { isWholeAtEnd: whole.indexOf(true) === whole.length - 1, isRight: reader.take() };
}

describe("reading answers", () => {
  test("an answer is whole at its last byte, wherever it is cut, one after the other", () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(400), { maxLength: 8 }),
        fc.integer({ min: 1, max: 40 }),
        (cuts, size) => {
          const reader = new ResponseReader(EXPECTED);
          for (const answer of [withLength(BODY), chunked(BODY, size), withLength(BODY)]) {
            expect(read(reader, answer, cuts)).toEqual({ isWholeAtEnd: true, isRight: true });
          }
        },
      ),
    );
  });

  test.each([
    ["another status", withLength(BODY, "402 Payment Required")],
    ["a body that is too short", withLength(BODY.slice(1))],
    ["a body that is too long", withLength(` ${BODY}`)],
    ["another ending", withLength(BODY.replace("DONE", "GONE"))],
    ["an empty body", withLength("")],
    ["another ending of a chunked body", chunked(BODY.replace("DONE", "GONE"), 7)],
  ])("%s is wrong, and the next answer is judged afresh", (_, answer) => {
    const reader = new ResponseReader(EXPECTED);
    expect(read(reader, answer, [])).toEqual({ isWholeAtEnd: true, isRight: false });
    expect(read(reader, chunked(BODY, 5), [])).toEqual({ isWholeAtEnd: true, isRight: true });
  });
});

test("requests are cut out of a connection's bytes, wherever those are cut", () => {
  const bytes = Buffer.from(
    "POST /v1/a HTTP/1.1\r\ncontent-length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nhost: x\r\n\r\n",
  );
  fc.assert(
    fc.property(fc.nat(bytes.length), fc.nat(bytes.length), (one, two) => {
      const requests: string[][] = [];
      const reader = new RequestReader((path, body) => requests.push([path, body.toString()]));
      const [first, second] = [Math.min(one, two), Math.max(one, two)];
      for (const part of [
        bytes.subarray(0, first),
        bytes.subarray(first, second),
        bytes.subarray(second),
      ]) {
        reader.push(part);
      }
      expect(requests).toEqual([
        ["/v1/a", "hello"],
        ["/b", ""],
      ]);
    }),
  );
});
