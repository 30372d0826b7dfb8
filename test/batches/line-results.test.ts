import { expect, test } from "bun:test";
import { answerPieces } from "../../src/jobs/batches/line-results.ts";

const line = { line: 7, customId: 'q"uote', url: "/v1/embeddings", body: {} };

test.each([
  ["short", 3, 1],
  ["long", 100_000, 4],
])(
  "a %s answer is one line of JSON in pieces, whatever line breaks stand in it",
  (_, many, least) => {
    const value = { object: "list", data: Array.from({ length: many }, (_, n) => `é${n}`) };
    const body = new TextEncoder().encode(JSON.stringify(value, null, 1).replaceAll("\n", "\r\n"));
    const answer = { status: 200, requestId: "req_1", body, isReplay: false };
    const pieces = answerPieces("batch_1", line, answer, { sealUnder: (_, plain) => plain });
    expect(pieces.length).toBeGreaterThanOrEqual(least);
    const text = Buffer.concat(pieces.map((seal) => seal("key"))).toString();
    expect(text.match(/[\r\n]/g)).toEqual(["\n"]);
    expect(JSON.parse(text)).toEqual({
      id: "batch_req_1_7",
      custom_id: 'q"uote',
      response: { status_code: 200, request_id: "req_1", body: value },
      error: null,
    });
  },
);
