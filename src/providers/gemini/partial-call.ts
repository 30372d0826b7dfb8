import { isFields } from "../../lib/json.ts";
import { brokenAnswer } from "../transport/call-failures.ts";

type Fields = Readonly<Record<string, unknown>>;
type Container = Record<string | number, unknown> | unknown[];

/** Total length of the values of one call, in UTF-16 code units. */
const MAX_CHARACTERS = 16 * 1024 * 1024;
const MAX_DEPTH = 64;
/** Matches a member or an element of a normalized path: https://www.rfc-editor.org/rfc/rfc9535 */
const SEGMENT = /\.([^.[\]]+)|\[(\d{1,6})\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]/y;

/**
 * A call whose arguments arrive in pieces, each with the path of its value
 * (https://googleapis.github.io/js-genai/release_docs/interfaces/types.PartialArg.html). Pieces of one string
 * are joined.
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

  /** Returns true if a part belongs to this call: it has no name, or the call's. */
  continuesWith({ name, id }: Fields): boolean {
    if (typeof name !== "string" || name === "") return true;
    return name === this.name && (id === undefined || id === "" || id === this.id);
  }

  /** Adds pieces. Throws ProviderFailure at a value without a path, and if the call becomes too large. */
  add(pieces: unknown): void {
    if (!Array.isArray(pieces)) return;
    for (const piece of pieces) if (isFields(piece)) this.#addPiece(piece);
  }

  /** Returns the arguments as JSON. */
  get arguments(): string {
    return JSON.stringify(this.#args);
  }

  #addPiece(piece: Fields): void {
    const value = pieceValue(piece);
    if (value === undefined) return;
    this.#characters += typeof value === "string" ? value.length : 1;
    if (this.#characters > MAX_CHARACTERS) throw brokenAnswer("a call that is too large");
    const path = segmentsOf(piece.jsonPath);
    let container: Container = this.#args;
    for (const [position, segment] of path.entries()) {
      const current = memberOf(container, segment);
      const next = path[position + 1];
      if (next === undefined) {
        const isContinued = typeof current === "string" && typeof value === "string";
        (container as Record<string | number, unknown>)[segment] = isContinued
          ? current + value
          : value;
      } else if (typeof current === "object" && current !== null) container = current as Container;
      else {
        const created: Container = typeof next === "number" ? [] : Object.create(null);
        (container as Record<string | number, unknown>)[segment] = created;
        container = created;
      }
    }
  }
}

function pieceValue(piece: Fields): unknown {
  if ("nullValue" in piece) return null;
  return piece.stringValue ?? piece.numberValue ?? piece.boolValue;
}

/** Returns the value at a segment. Throws ProviderFailure for an index beyond the end of a list. */
function memberOf(container: Container, segment: string | number): unknown {
  if (!Array.isArray(container))
    return Object.hasOwn(container, segment) ? container[segment] : undefined;
  if (typeof segment === "number" && segment <= container.length) return container[segment];
  throw brokenAnswer("a piece of a call without its path");
}

function segmentsOf(path: unknown): (string | number)[] {
  const segments: (string | number)[] = [];
  if (typeof path !== "string" || !path.startsWith("$")) throw brokenAnswer("an invalid path");
  SEGMENT.lastIndex = 1;
  while (SEGMENT.lastIndex < path.length) {
    const match = SEGMENT.exec(path);
    if (match === null || segments.length === MAX_DEPTH) throw brokenAnswer("an invalid path");
    const [, name, element, quoted] = match;
    if (element !== undefined) segments.push(Number(element));
    else segments.push(name ?? quoted!.slice(1, -1).replaceAll(/\\(.)/g, "$1"));
  }
  if (segments.length === 0) throw brokenAnswer("an invalid path");
  return segments;
}
