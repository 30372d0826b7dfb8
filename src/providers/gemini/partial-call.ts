import { isFields } from "../../lib/json.ts";
import { brokenAnswer } from "../transport/call-failures.ts";

type Fields = Readonly<Record<string, unknown>>;
type Container = Record<string | number, unknown> | unknown[];

/** Of the values of one call, in UTF-16 code units. */
const MAX_CHARACTERS = 16 * 1024 * 1024;
const MAX_DEPTH = 64;
/** A member or an element of a normal path: https://www.rfc-editor.org/rfc/rfc9535 */
const SEGMENT = /\.([^.[\]]+)|\[(\d{1,6})\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]/y;

/**
 * A call whose arguments come in pieces, each with the path of its value
 * (https://googleapis.github.io/js-genai/release_docs/interfaces/types.PartialArg.html). Pieces of one string are joined.
 */
export class PartialCall {
  readonly name: string;
  readonly id: unknown;
  signature: string | undefined;
  readonly #args: Container;
  #characters = 0;

  constructor({ name, id, args }: Fields) {
    this.name = name as string;
    this.id = id;
    this.#args = Object.assign(Object.create(null), isFields(args) ? args : {});
  }

  /** Whether a part belongs to this call: it has no name, or the call's. */
  continuesWith({ name, id }: Fields): boolean {
    if (typeof name !== "string" || name === "") return true;
    return name === this.name && (id === undefined || id === "" || id === this.id);
  }

  /** Throws ProviderFailure at a value without a path, and if the call becomes too large. */
  add(pieces: unknown): void {
    if (!Array.isArray(pieces)) return;
    for (const piece of pieces) if (isFields(piece)) this.#addPiece(piece);
  }

  /** The arguments as JSON. */
  get arguments(): string {
    return JSON.stringify(this.#args);
  }

  #addPiece(piece: Fields): void {
    const value = pieceValue(piece);
    if (value === undefined) return;
    this.#characters += typeof value === "string" ? value.length : 1;
    if (this.#characters > MAX_CHARACTERS) throw brokenAnswer("a call that is too large");
    const path = segmentsOf(piece.jsonPath);
    let at: Container = this.#args;
    for (const [position, segment] of path.entries()) {
      const found = memberOf(at, segment);
      const next = path[position + 1];
      if (next === undefined) {
        const isContinued = typeof found === "string" && typeof value === "string";
        (at as Record<string | number, unknown>)[segment] = isContinued ? found + value : value;
      } else if (typeof found === "object" && found !== null) at = found as Container;
      else {
        const made: Container = typeof next === "number" ? [] : Object.create(null);
        (at as Record<string | number, unknown>)[segment] = made;
        at = made;
      }
    }
  }
}

function pieceValue(piece: Fields): unknown {
  if ("nullValue" in piece) return null;
  return piece.stringValue ?? piece.numberValue ?? piece.boolValue;
}

/** The value at a segment. Throws ProviderFailure for an element that is not the next one of a list at most. */
function memberOf(at: Container, segment: string | number): unknown {
  if (!Array.isArray(at)) return Object.hasOwn(at, segment) ? at[segment] : undefined;
  if (typeof segment === "number" && segment <= at.length) return at[segment];
  throw brokenAnswer("a piece of a call without its path");
}

function segmentsOf(path: unknown): (string | number)[] {
  const segments: (string | number)[] = [];
  if (typeof path !== "string" || !path.startsWith("$")) throw brokenAnswer("an invalid path");
  SEGMENT.lastIndex = 1;
  while (SEGMENT.lastIndex < path.length) {
    const found = SEGMENT.exec(path);
    if (found === null || segments.length === MAX_DEPTH) throw brokenAnswer("an invalid path");
    const [, name, element, quoted] = found;
    if (element !== undefined) segments.push(Number(element));
    else segments.push(name ?? quoted!.slice(1, -1).replaceAll(/\\(.)/g, "$1"));
  }
  if (segments.length === 0) throw brokenAnswer("an invalid path");
  return segments;
}
