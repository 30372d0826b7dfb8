export type ReadRange =
  | { readonly kind: "whole" }
  /** Bytes from `start` up to, not including, `end`. */
  | { readonly kind: "part"; readonly start: number; readonly end: number }
  | { readonly kind: "unsatisfiable" };

const WHOLE: ReadRange = { kind: "whole" };
/** Digits in any number: what is beyond a number's precision, even infinite, lies behind every end all the same. */
const RANGE = /^bytes=\s*(\d*)-(\d*)\s*$/i;

/**
 * The part of a content that a Range header asks for (RFC 9110, section 14). What is no range of bytes, or
 * asks for several, is passed over, as the standard allows.
 */
export function readRange(header: string | null, bytes: number): ReadRange {
  const match = header === null ? null : RANGE.exec(header);
  if (!match) return WHOLE;
  const [, first = "", last = ""] = match;
  if (first === "" && last === "") return WHOLE;
  if (first === "") {
    const wanted = Math.min(Number(last), bytes);
    return wanted === 0
      ? { kind: "unsatisfiable" }
      : { kind: "part", start: bytes - wanted, end: bytes };
  }
  const start = Number(first);
  if (last !== "" && Number(last) < start) return WHOLE;
  if (start >= bytes) return { kind: "unsatisfiable" };
  const end = last === "" ? bytes : Math.min(Number(last) + 1, bytes);
  return { kind: "part", start, end };
}

/** True where a list of entity tags (If-None-Match) names this one, weakly compared. */
export function namesEntity(header: string | null, etag: string): boolean {
  return header !== null && namesExactly(header.replaceAll(/(^|,)\s*W\//g, "$1"), etag);
}

/** True where a list of entity tags (If-Match) names this one, strongly compared: a weak tag names none. */
export function namesExactly(header: string, etag: string): boolean {
  return header.trim() === "*" || header.split(",").some((tag) => tag.trim() === etag);
}
