import type { Seal } from "../../../db/queries/master-key.ts";
import type { BatchEnd } from "../../lib/batch.ts";
import type { Keyring } from "../../lib/keyring.ts";
import type { BatchLine } from "./input-lines.ts";
import type { LineAnswer } from "./line-call.ts";

/** Bytes of an answer that are sealed at a time. */
const PIECE_BYTES = 262_144;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const NONE = new Uint8Array();

type Sealing = Pick<Keyring, "sealUnder">;

/** Returns the text of an answered line in the batch's files, sealed in pieces. */
export function answerPieces(
  batchId: string,
  line: BatchLine,
  answer: LineAnswer,
  keyring: Sealing,
): Seal[] {
  const { status, requestId, body } = answer;
  const head = `{"status_code":${status},"request_id":${JSON.stringify(requestId)},"body":`;
  return piecesOf(lineHead(batchId, line) + head, body, `}${lineEnd("null")}`, keyring);
}

const WHY_NOT_CALLED: Readonly<Record<Exclude<BatchEnd, "completed">, string>> = {
  expired: "The batch expired before this request was called.",
  cancelled: "The batch was cancelled before this request was called.",
};

/** Returns the sealed text of a line that was not called before the end of its batch. */
export function uncalledPieces(
  batchId: string,
  line: BatchLine,
  end: Exclude<BatchEnd, "completed">,
  keyring: Sealing,
): Seal[] {
  const error = JSON.stringify({ code: `batch_${end}`, message: WHY_NOT_CALLED[end] });
  return piecesOf(`${lineHead(batchId, line)}null`, NONE, lineEnd(error), keyring);
}

function lineHead(batchId: string, { line, customId }: BatchLine): string {
  const id = `batch_req_${batchId.slice(batchId.indexOf("_") + 1)}_${line}`;
  return `{"id":"${id}","custom_id":${JSON.stringify(customId)},"response":`;
}

const lineEnd = (error: string): string => `,"error":${error}}\n`;

/**
 * Returns the pieces of a text. Each is assembled when it is sealed, because assembling a long answer in one
 * step would block the event loop.
 */
function piecesOf(head: string, body: Uint8Array, tail: string, keyring: Sealing): Seal[] {
  const pieces: Seal[] = [];
  for (let start = 0; start === 0 || start < body.byteLength; start += PIECE_BYTES) {
    const end = start + PIECE_BYTES;
    const before = Buffer.from(start === 0 ? head : "");
    const after = Buffer.from(end < body.byteLength ? "" : tail);
    pieces.push((keyId) => {
      const part = onOneLine(body.subarray(start, end));
      return keyring.sealUnder(keyId, Buffer.concat([before, part, after]));
    });
  }
  return pieces;
}

/**
 * Returns the JSON with line breaks between its tokens replaced by blanks, since a line break would end the
 * line.
 */
function onOneLine(json: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(json);
  for (const lineBreak of [LINE_FEED, CARRIAGE_RETURN]) {
    for (let at = bytes.indexOf(lineBreak); at >= 0; at = bytes.indexOf(lineBreak, at + 1)) {
      bytes[at] = SPACE;
    }
  }
  return bytes;
}
