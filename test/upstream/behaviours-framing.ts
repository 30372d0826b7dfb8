import { azureAnswer } from "./azure.ts";
import type { BehaviourFunction } from "./behaviour.ts";
import { wholeBody } from "./chunks.ts";
import { completed, regularChunks, streamAnswer, wholeAnswer } from "./scripted.ts";
import { chunkEvent, doneEvent, frame, type Step, text, toJson } from "./wire.ts";

/** FF and FE never occur in UTF-8, and C3 opens a character that does not follow. */
const INVALID_UTF8_AS_LATIN1 = "a\u00ff\u00fe\u00c3b";

/** Behaviours that say the regular thing in an unusual way; the odd bytes concern streams alone. */
export const FRAMING_BEHAVIOURS = {
  crlf: (call) => completed(call, { framing: { lineEnd: "\r\n" } }),
  cr: (call) => completed(call, { framing: { lineEnd: "\r" } }),
  "no-space": (call) => completed(call, { framing: { space: "" } }),
  "multi-line-data": (call) => completed(call, { framing: { indented: true } }),
  comments: (call) =>
    completed(call, {
      framing: { before: [": PROCESSING", ":", ": several lines", "", ": data: {}"] },
    }),
  "event-fields": (call) =>
    completed(call, { framing: { before: ["event: message", "id: 7", "retry: 1000", "unknown"] } }),
  bom: (call) => {
    const regular = completed(call);
    if (regular.kind !== "stream") return regular;
    return { ...regular, steps: [text("\uFEFF"), ...regular.steps] };
  },
  "invalid-utf8": (call) => {
    const content = [INVALID_UTF8_AS_LATIN1];
    const broken = { ...call, completion: { ...call.completion, content } };
    const payloads = call.stream ? regularChunks(broken) : [wholeBody(broken.completion)];
    return streamAnswer(call, () => [
      ...payloads.map((one) => latin1(call.stream ? frame(toJson(one)) : toJson(one))),
      ...(call.stream ? [doneEvent()] : []),
    ]);
  },
  azure: (call) => azureAnswer(call),
  frames: (call) => {
    const { frames = [], delayMs = 0 } = call.options;
    if (!call.stream) return wholeAnswer(call, frames[0]);
    return streamAnswer(call, function* () {
      for (const one of frames) {
        yield typeof one === "string" ? text(one) : chunkEvent(one);
        if (delayMs > 0) yield { kind: "wait", ms: delayMs };
      }
    });
  },
} satisfies Record<string, BehaviourFunction>;

function latin1(content: string): Step {
  return { kind: "bytes", bytes: Uint8Array.from(Buffer.from(content, "latin1")) };
}
