import { ABSURD_USAGES } from "./absurd-usages.ts";
import type { BehaviourFunction } from "./behaviour.ts";
import { contentChunk, isFinishChunk } from "./chunks.ts";
import { asArray, asObject } from "./json.ts";
import { completed, streamAnswer, upTo, wholeAnswer } from "./scripted.ts";
import { chunkEvent, doneEvent, frame, JSON_BODY, text, toJson } from "./wire.ts";

const MEBIBYTE = 1_048_576;
const ENDLESS_PIECE_CHARACTERS = 1024;
const NOT_JSON = "<<<not json>>>";
const STREAM_ERROR = {
  error: { message: "The server had an error.", type: "server_error", param: null, code: null },
};

/** Behaviours that begin like a regular answer and go wrong, and answers that say something wrong. */
export const TROUBLE_BEHAVIOURS = {
  cut: (call) => upTo(call, () => [{ kind: "cut" }]),
  "stall-after-events": (call) => upTo(call, () => [{ kind: "hang" }]),
  "truncated-json": (call) =>
    upTo(call, () => (call.stream ? [text('data: {"id":"chatcmpl-1","choi')] : [])),
  "garbage-chunk": (call) =>
    call.stream
      ? upTo(call, () => [text(frame(NOT_JSON)), doneEvent()])
      : { kind: "whole", status: 200, headers: JSON_BODY, body: NOT_JSON },
  "error-in-stream": (call) =>
    call.stream
      ? upTo(call, () => [text(frame(toJson(STREAM_ERROR)))])
      : wholeAnswer(call, STREAM_ERROR),
  "error-event": (call) =>
    call.stream
      ? upTo(call, () => [text(`event: error\n${frame(toJson(STREAM_ERROR))}`)])
      : wholeAnswer(call, STREAM_ERROR),
  "chunk-without-choices": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.map((one, i) => (i === 1 ? { ...one, choices: undefined } : one)),
      whole: (body) => ({ ...body, choices: undefined }),
    }),
  "no-finish-reason": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.filter((one) => !isFinishChunk(one)),
      whole: (body) => ({
        ...body,
        choices: asArray(body.choices).map((one) => ({ ...asObject(one), finish_reason: null })),
      }),
    }),
  "duplicate-finish": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.flatMap((one) => (isFinishChunk(one) ? [one, one] : [one])),
    }),
  "no-done": (call) =>
    call.stream
      ? upTo({ ...call, options: { ...call.options, afterEvents: Infinity } }, () => [])
      : completed(call),
  "no-content": (call) =>
    completed({ ...call, completion: { ...call.completion, content: [], toolCalls: [] } }),
  "no-usage": (call) => completed({ ...call, completion: { ...call.completion, usage: null } }),
  "usage-every-chunk": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.map((one) => ({ ...one, usage: call.completion.usage })),
    }),
  "absurd-usage": (call) => {
    const usage = ABSURD_USAGES[call.options.which ?? "negative"];
    if (usage === undefined) throw new Error(`no absurd usage named ${call.options.which}`);
    return completed({ ...call, completion: { ...call.completion, usage } });
  },
  "huge-event": (call) => {
    const content = ["h".repeat(call.options.contentBytes ?? MEBIBYTE)];
    return completed({ ...call, completion: { ...call.completion, content } });
  },
  endless: (call) => {
    const piece = "x".repeat(ENDLESS_PIECE_CHARACTERS);
    const { delayMs = 0 } = call.options;
    const step = call.stream ? chunkEvent(contentChunk(call.completion, piece)) : text(piece);
    return upTo({ ...call, options: { ...call.options, afterEvents: 1 } }, function* () {
      while (true) {
        yield step;
        if (delayMs > 0) yield { kind: "wait", ms: delayMs };
      }
    });
  },
  "slow-drip": (call) => {
    const options = { pieceBytes: 16, pieceDelayMs: 2, ...call.options };
    const regular = completed({ ...call, options });
    return regular.kind === "whole"
      ? streamAnswer({ ...call, options }, () => [text(regular.body, regular.event)])
      : regular;
  },
} satisfies Record<string, BehaviourFunction>;
