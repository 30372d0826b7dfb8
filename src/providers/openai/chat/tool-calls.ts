import { isFields } from "../../../lib/json.ts";

type Fields = Record<string, unknown>;

/** OpenAI accepts ids of at most 40 characters. */
const STEM_CHARACTERS = 16;

/**
 * Returns the start of call ids for providers that send none. @param id of the request or its answer, which ends in hex
 * digits
 */
export function callIdStem(id: string, choice: number): string {
  return `call_${id.slice(-STEM_CHARACTERS)}_${choice}_`;
}

/**
 * Converts the tool calls of a message to OpenAI's form, in place (contract §7). Mistral sends no type. Other providers
 * send no id, arguments as an object, or null and an empty list if there are no calls. Mistral and DeepSeek number the
 * calls, which only streams should do: OpenAI rejects such calls when they are sent back.
 */
export function normaliseToolCalls(message: Fields, completionId: string, choice: number): void {
  dropEmptyCalls(message);
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

/** Removes members that contain no calls. */
export function dropEmptyCalls(message: Fields): void {
  const { tool_calls: calls } = message;
  if (calls !== undefined && !(Array.isArray(calls) && calls.length > 0)) delete message.tool_calls;
  const { function_call: called } = message;
  if (called !== undefined && bytesOfCalled(called) === 0) delete message.function_call;
}

/** Adds the members that a call, or its first piece, must have. Returns its id. */
function beginCall(call: Fields, fallbackId: string): string {
  if (typeof call.id !== "string" || call.id === "") call.id = fallbackId;
  if (typeof call.type !== "string" || call.type === "")
    call.type = isFields(call.custom) ? "custom" : "function";
  if (!isFields(call.function)) return call.id as string;
  call.function.arguments = argumentsText(call.function.arguments) ?? "";
  return call.id as string;
}

/** Returns JSON as text. Undefined if there is no value. */
function argumentsText(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Returns the bytes of the calls in a delta, in the present form or the old one of functions. */
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

interface StreamedCall {
  readonly position: number;
  /** The provider's id, "" if it sent none. */
  readonly id: string;
  /** The name as received so far. */
  name: string;
  /** A function that has received no arguments so far. */
  isBare: boolean;
}

/**
 * The tool calls of one choice of a stream. Clients join their pieces by the index (spec 6.2). Some providers omit it,
 * others reuse it for a second call.
 */
export class StreamedToolCalls {
  readonly #stem: string;
  readonly #byId = new Map<string, StreamedCall>();
  readonly #byIndex = new Map<number, StreamedCall>();
  readonly #calls: StreamedCall[] = [];
  #last: StreamedCall | undefined;

  /** @param stem prefix of the ids of calls for which the provider sends none */
  constructor(stem: string) {
    this.#stem = stem;
  }

  /** Rewrites the pieces of one chunk, in place. */
  take(pieces: readonly unknown[]): void {
    for (const piece of pieces) if (isFields(piece)) this.#take(piece);
  }

  /** Returns pieces with `{}` for the calls that ended without arguments, because an empty text is not JSON. */
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
    const existing = this.#continuedCall(id, index, name);
    const call = existing ?? this.#begin(piece, id, index, name);
    if (existing === undefined) beginCall(piece, `${this.#stem}${call.position}`);
    else continueCall(piece, existing);
    if (isFields(piece.function) && piece.function.arguments) call.isBare = false;
    this.#last = call;
    piece.index = call.position;
  }

  /** Returns the call that a piece continues. Undefined if it begins a new one. */
  #continuedCall(id: string, index: number | undefined, name: string): StreamedCall | undefined {
    if (index === undefined) {
      if (id !== "") return this.#byId.get(id);
      return name === "" ? this.#last : undefined;
    }
    const existing = this.#byIndex.get(index);
    // Some providers give every piece a new id. Only a piece with a name begins another call.
    const isAnother = existing !== undefined && id !== "" && name !== "" && id !== existing.id;
    return isAnother ? undefined : existing;
  }

  #begin(piece: Fields, id: string, index: number | undefined, name: string): StreamedCall {
    const isBare = isFields(piece.function);
    const call = { position: this.#calls.length, id, name, isBare };
    this.#calls.push(call);
    if (id !== "") this.#byId.set(id, call);
    if (index !== undefined) this.#byIndex.set(index, call);
    return call;
  }
}

/** Converts a later piece of a call. It keeps only the arguments: clients append id and name if they are sent again. */
function continueCall(piece: Fields, call: StreamedCall): void {
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
