import { isFields } from "../../../lib/json.ts";
import { argumentsText, beginCall } from "./tool-calls.ts";

type Fields = Record<string, unknown>;

interface KnownCall {
  readonly position: number;
  /** The provider's own; "" where it gave none. */
  readonly id: string;
  /** As far as it has been told. */
  name: string;
  /** A function that was given no arguments so far. */
  isBare: boolean;
}

/**
 * The tool calls of one choice of a stream. Clients join their pieces by the index (spec 6.2), which some
 * providers leave out and others give again to a second call.
 */
export class StreamedToolCalls {
  readonly #stem: string;
  readonly #byId = new Map<string, KnownCall>();
  readonly #byIndex = new Map<number, KnownCall>();
  readonly #calls: KnownCall[] = [];
  #last: KnownCall | undefined;

  /** @param stem of ids where the provider gives none */
  constructor(stem: string) {
    this.#stem = stem;
  }

  /** Rewrites the pieces of one chunk, in place. */
  take(pieces: readonly unknown[]): void {
    for (const piece of pieces) if (isFields(piece)) this.#take(piece);
  }

  /** Pieces for the calls that ended without arguments: nothing at all is no JSON. */
  emptyArguments(): Fields[] {
    const bare: Fields[] = [];
    for (const call of this.#calls) {
      if (call.isBare) bare.push({ index: call.position, function: { arguments: "{}" } });
    }
    return bare;
  }

  #take(piece: Fields): void {
    const id = textOf(piece.id);
    const index = Number.isSafeInteger(piece.index) ? (piece.index as number) : undefined;
    const name = isFields(piece.function) ? textOf(piece.function.name) : "";
    const known = this.#known(id, index, name);
    const call = known ?? this.#begin(piece, id, index, name);
    if (known === undefined) beginCall(piece, `${this.#stem}${call.position}`);
    else continueCall(piece, known);
    if (isFields(piece.function) && piece.function.arguments) call.isBare = false;
    this.#last = call;
    piece.index = call.position;
  }

  /** The call that a piece goes on with; undefined where it begins one. */
  #known(id: string, index: number | undefined, name: string): KnownCall | undefined {
    if (index === undefined) {
      if (id !== "") return this.#byId.get(id);
      return name === "" ? this.#last : undefined;
    }
    const known = this.#byIndex.get(index);
    // Some give every piece a new id; only with a name it is another call.
    const isAnother = known !== undefined && id !== "" && name !== "" && id !== known.id;
    return isAnother ? undefined : known;
  }

  #begin(piece: Fields, id: string, index: number | undefined, name: string): KnownCall {
    const isBare = isFields(piece.function);
    const call = { position: this.#calls.length, id, name, isBare };
    this.#calls.push(call);
    if (id !== "") this.#byId.set(id, call);
    if (index !== undefined) this.#byIndex.set(index, call);
    return call;
  }
}

/** A further piece brings arguments; the id was sent, and clients append what is sent again. */
function continueCall(piece: Fields, call: KnownCall): void {
  delete piece.id;
  if (textOf(piece.type) === "") delete piece.type;
  const { function: called } = piece;
  if (!isFields(called)) return;
  const name = textOf(called.name);
  if (name === "" || name === call.name) delete called.name;
  else call.name += name;
  const text = argumentsText(called.arguments);
  if (text === undefined) delete called.arguments;
  else called.arguments = text;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
