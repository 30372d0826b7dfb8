import type { Call } from "./behaviour.ts";
import { deltaChunks, finishChunks, usageChunks, wholeBody } from "./chunks.ts";
import type { JsonObject } from "./json.ts";
import {
  type Answer,
  chunkEvent,
  contentOf,
  doneEvent,
  EVENT_STREAM,
  type Framing,
  JSON_BODY,
  PLAIN_FRAMING,
  type Step,
  text,
  toJson,
} from "./wire.ts";

const DEFAULT_AFTER_EVENTS = 3;

/** What differs from the regular answer. */
export interface Change {
  /** The chunks of a stream, the usage chunk included. */
  chunks?: (chunks: JsonObject[]) => JsonObject[];
  whole?: (body: JsonObject) => JsonObject;
  framing?: Partial<Framing>;
}

/** The completion in the form that was asked for, streamed or whole. */
export function completed(call: Call, change: Change = {}): Answer {
  if (!call.stream) {
    const body = wholeBody(call.completion);
    return wholeAnswer(call, change.whole?.(body) ?? body);
  }
  const chunks = regularChunks(call);
  const framing = { ...PLAIN_FRAMING, ...change.framing };
  return streamAnswer(call, function* () {
    yield* paced(call, change.chunks?.(chunks) ?? chunks, framing);
    yield doneEvent(framing);
  });
}

/**
 * The first `afterEvents` events (three unless told) of the regular stream, then the trouble; to an unstreamed request
 * the first half of the JSON body, then the trouble.
 */
export function upTo(call: Call, trouble: () => Iterable<Step>): Answer {
  return streamAnswer(call, function* () {
    if (call.stream) {
      yield* paced(
        call,
        regularChunks(call).slice(0, call.options.afterEvents ?? DEFAULT_AFTER_EVENTS),
      );
    } else {
      const body = toJson(wholeBody(call.completion));
      yield text(body.slice(0, body.length / 2));
    }
    yield* trouble();
  });
}

export function wholeAnswer(call: Call, body: unknown, status = 200): Answer {
  return {
    kind: "whole",
    status,
    headers: { ...JSON_BODY, ...call.options.headers },
    body: toJson(body),
    event: contentOf(body),
  };
}

/** A body written step by step, with the content type of what was asked for. */
export function streamAnswer(call: Call, steps: () => Iterable<Step>): Answer {
  return {
    kind: "stream",
    status: 200,
    headers: { ...(call.stream ? EVENT_STREAM : JSON_BODY), ...call.options.headers },
    steps: steps(),
    pace: call.options,
  };
}

/** The chunks of the completion, without `[DONE]`. */
export function regularChunks(call: Call): JsonObject[] {
  return [
    ...deltaChunks(call.completion),
    ...finishChunks(call.completion),
    ...(call.includeUsage ? usageChunks(call.completion) : []),
  ];
}

function* paced(call: Call, chunks: JsonObject[], framing = PLAIN_FRAMING): Generator<Step> {
  const { delayMs = 0 } = call.options;
  for (const chunk of chunks) {
    yield chunkEvent(chunk, framing);
    if (delayMs > 0) yield { kind: "wait", ms: delayMs };
  }
}
