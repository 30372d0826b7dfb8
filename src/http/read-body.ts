import { bodyTooSlow, GatewayError } from "../lib/errors.ts";
import type { BodyBudget } from "./body-budget.ts";
import { parseJson } from "./check-json.ts";
import { assertPlainBody } from "./content-encoding.ts";

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i;
const FOREIGN_CHARSET = /charset\s*=\s*"?(?!utf-?8\b|us-ascii\b)[\w-]+/i;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });

export interface JsonBody {
  readonly value: unknown;
  readonly text: string;
}

/** Reads a JSON body: content type 415, size 413, then JSON 400. */
export async function readJsonBody(
  request: Request,
  budget: BodyBudget,
  maxBytes: number,
): Promise<JsonBody> {
  const contentType = request.headers.get("content-type");
  if (contentType === null || !JSON_TYPE.test(contentType) || FOREIGN_CHARSET.test(contentType)) {
    throw new GatewayError(
      "unsupported_media_type",
      "The request body must be JSON in UTF-8, with Content-Type: application/json.",
    );
  }
  assertPlainBody(request.headers);
  const stated = request.headers.get("content-length");
  if (Number(stated ?? 0) > maxBytes) throw tooLarge(maxBytes);
  // Of the two framings a message in chunks follows the chunks (RFC 9112, section 6.3).
  const hasLength = stated !== null && !request.headers.has("transfer-encoding");
  let bytes: ArrayBuffer | Uint8Array;
  try {
    bytes = await (hasLength
      ? readWhole(request, Number(stated), budget)
      : readPieces(request, budget, maxBytes));
  } catch (error) {
    throw unread(error, maxBytes);
  }
  const text = decode(bytes);
  return { value: parseJson(text), text };
}

function unread(error: unknown, maxBytes: number): GatewayError {
  if (error instanceof GatewayError) return error;
  if ((error as { code?: string }).code === "ERR_BODY_TOO_LARGE") return tooLarge(maxBytes);
  return new GatewayError("client_closed_request", "The request body did not arrive whole.", {
    cause: error,
  });
}

async function readWhole(
  request: Request,
  bytes: number,
  budget: BodyBudget,
): Promise<ArrayBuffer> {
  budget.take(bytes);
  const { promise: tooSlow, reject } = Promise.withResolvers<never>();
  const deadline = budget.begin(() => reject(bodyTooSlow()));
  try {
    return await Promise.race([request.arrayBuffer(), tooSlow]);
  } finally {
    deadline.cancel();
    budget.give(bytes);
  }
}

/** A body without a stated length may have no end, so no more of it is read than may be kept. */
async function readPieces(
  request: Request,
  budget: BodyBudget,
  maxBytes: number,
): Promise<Uint8Array> {
  const reader = request.body?.getReader();
  if (reader === undefined) return new Uint8Array();
  const pieces: Uint8Array[] = [];
  let readBytes = 0;
  let isTooSlow = false;
  const deadline = budget.begin(() => {
    isTooSlow = true;
    reader.cancel().catch(() => {});
  });
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (isTooSlow) throw bodyTooSlow();
      if (done) return Buffer.concat(pieces);
      budget.take(value.byteLength);
      readBytes += value.byteLength;
      if (readBytes > maxBytes) throw tooLarge(maxBytes);
      pieces.push(value);
    }
  } finally {
    deadline.cancel();
    budget.give(readBytes);
    reader.cancel().catch(() => {});
  }
}

function decode(bytes: ArrayBuffer | Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new GatewayError("invalid_json", "The request body is not valid UTF-8.");
  }
}

function tooLarge(maxBytes: number): GatewayError {
  return new GatewayError(
    "payload_too_large",
    `A JSON request body may hold at most ${maxBytes / 1024 / 1024} MB.`,
  );
}
