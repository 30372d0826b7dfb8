import { isFields } from "../../../lib/json.ts";

type Fields = Record<string, unknown>;

/** OpenAI takes ids of at most 40 characters back. */
const STEM_CHARACTERS = 16;

/** How ids of calls begin whose provider gave none. @param id of the request or its answer, which ends in hex digits */
export function callIdStem(id: string, choice: number): string {
  return `call_${id.slice(-STEM_CHARACTERS)}_${choice}_`;
}

/**
 * Brings the tool calls of a message into OpenAI's form, in place (contract §7). Mistral names no type,
 * others no id, or give arguments as an object, or null and an empty list where nothing is called. It and
 * DeepSeek number the calls, as only streams do: OpenAI refuses such a call when it comes back.
 */
export function normaliseToolCalls(message: Fields, completionId: string, choice: number): void {
  dropNothingCalled(message);
  if (!Array.isArray(message.tool_calls)) return;
  const stem = callIdStem(completionId, choice);
  message.tool_calls.forEach((call: unknown, position) => {
    if (!isFields(call)) return;
    beginCall(call, `${stem}${position}`);
    if (call.index !== undefined) delete call.index;
    if (isFields(call.function) && call.function.arguments === "") call.function.arguments = "{}";
  });
  if (message.content === "") message.content = null;
}

/** Leaves out members that tell of no call at all. */
export function dropNothingCalled(message: Fields): void {
  const { tool_calls: calls } = message;
  if (calls !== undefined && !(Array.isArray(calls) && calls.length > 0)) delete message.tool_calls;
  const { function_call: called } = message;
  if (called !== undefined && bytesOfCalled(called) === 0) delete message.function_call;
}

/** What a call, or the first piece of one, must tell. Returns its id. */
function beginCall(call: Fields, idWhereNone: string): string {
  if (typeof call.id !== "string" || call.id === "") call.id = idWhereNone;
  if (typeof call.type !== "string" || call.type === "")
    call.type = isFields(call.custom) ? "custom" : "function";
  if (!isFields(call.function)) return call.id as string;
  call.function.arguments = argumentsText(call.function.arguments) ?? "";
  return call.id as string;
}

/** JSON as text; undefined where nothing is said. */
function argumentsText(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Bytes of what a delta calls, in the present form or in the old one of functions. */
export function calledBytes({ tool_calls: calls, function_call: called }: Fields): number {
  let bytes = bytesOfCalled(called);
  if (!Array.isArray(calls)) return bytes;
  for (const call of calls) {
    if (isFields(call)) bytes += bytesOfCalled(call.function) + bytesOfCalled(call.custom);
  }
  return bytes;
}

function bytesOfCalled(called: unknown): number {
  if (!isFields(called)) return 0;
  return textBytes(called.name) + textBytes(called.arguments) + textBytes(called.input);
}

function textBytes(value: unknown): number {
  return typeof value === "string" ? Buffer.byteLength(value) : 0;
}

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
