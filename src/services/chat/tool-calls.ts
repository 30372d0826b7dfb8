import { isFields } from "./provider-content.ts";

/** Completes a call in place: Mistral leaves its type out, and some servers send arguments as an object. */
export function asFunctionCall(call: Record<string, unknown>): void {
  const { function: fn } = call;
  if (!isFields(fn)) return;
  call.type ??= "function";
  if (isFields(fn.arguments)) fn.arguments = JSON.stringify(fn.arguments);
}

export function toolCallBytes(calls: readonly unknown[]): number {
  let bytes = 0;
  for (const call of calls) {
    const fn = isFields(call) && isFields(call.function) ? call.function : undefined;
    if (typeof fn?.name === "string") bytes += fn.name.length;
    if (typeof fn?.arguments === "string") bytes += Buffer.byteLength(fn.arguments);
  }
  return bytes;
}
