import type { Seal } from "../../db/queries/master-key.ts";
import type { BatchEnd } from "../lib/batch.ts";
import type { Keyring } from "../lib/keyring.ts";
import type { BatchLine } from "./input-lines.ts";
import type { LineAnswer } from "./line-call.ts";

/** Of what is sealed at a time. */
const PIECE_BYTES = 262_144;

type Sealing = Pick<Keyring, "sealUnder">;

/** What stands of an answered line in the batch's files, sealed in pieces. */
export function answerPieces(
  batchId: string,
  line: BatchLine,
  answer: LineAnswer,
  keyring: Sealing,
): Seal[] {
  const { status, requestId, body } = answer;
  // Line breaks between the tokens of a provider's JSON would end the line.
  const oneLine = body.replaceAll(/[\r\n]+/g, " ");
  const response = `{"status_code":${status},"request_id":${JSON.stringify(requestId)},"body":${oneLine}}`;
  return piecesOf(resultLine(batchId, line, response, "null"), keyring);
}

const WHY_NOT_CALLED: Readonly<Record<Exclude<BatchEnd, "completed">, string>> = {
  expired: "The batch expired before this request was called.",
  cancelled: "The batch was cancelled before this request was called.",
};

/** The same of a line that was not called before the end of its batch. */
export function uncalledPieces(
  batchId: string,
  line: BatchLine,
  end: Exclude<BatchEnd, "completed">,
  keyring: Sealing,
): Seal[] {
  const error = { code: `batch_${end}`, message: WHY_NOT_CALLED[end] };
  return piecesOf(resultLine(batchId, line, "null", JSON.stringify(error)), keyring);
}

function resultLine(
  batchId: string,
  { line, customId }: BatchLine,
  response: string,
  error: string,
): string {
  const id = `batch_req_${batchId.slice(batchId.indexOf("_") + 1)}_${line}`;
  return `{"id":"${id}","custom_id":${JSON.stringify(customId)},"response":${response},"error":${error}}\n`;
}

function piecesOf(text: string, keyring: Sealing): Seal[] {
  const bytes = new TextEncoder().encode(text);
  const pieces: Seal[] = [];
  for (let start = 0; start < bytes.byteLength; start += PIECE_BYTES) {
    const piece = bytes.subarray(start, start + PIECE_BYTES);
    pieces.push((keyId) => keyring.sealUnder(keyId, piece));
  }
  return pieces;
}
