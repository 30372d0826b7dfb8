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
export function beginCall(call: Fields, idWhereNone: string): string {
  if (typeof call.id !== "string" || call.id === "") call.id = idWhereNone;
  if (typeof call.type !== "string" || call.type === "")
    call.type = isFields(call.custom) ? "custom" : "function";
  if (!isFields(call.function)) return call.id as string;
  call.function.arguments = argumentsText(call.function.arguments) ?? "";
  return call.id as string;
}

/** JSON as text; undefined where nothing is said. */
export function argumentsText(value: unknown): string | undefined {
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
