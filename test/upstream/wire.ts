import { asArray, asObject, asText, type JsonObject } from "./json.ts";

/** What an event of a stream carries, for the count of what was served. */
export interface EventContent {
  characters: number;
  /** Undefined where the event says nothing of usage. */
  usage?: unknown;
}

/** One step of a scripted body. `cut` destroys the connection, `hang` keeps it open and silent. */
export type Step =
  | { kind: "bytes"; bytes: Uint8Array; event?: EventContent }
  | { kind: "wait"; ms: number }
  | { kind: "cut" }
  | { kind: "hang" };

/** How the bytes of a stream are cut into writes: at random offsets, in pieces of one length, or not at all. */
export interface Pace {
  cut?: boolean;
  /** Of the random offsets, instead of the upstream's seed. */
  seed?: number;
  pieceBytes?: number;
  /** After each piece. */
  pieceDelayMs?: number;
}

/** How a request is answered. `refuse` closes the connection before any byte, `silent` never answers. */
export type Answer =
  | { kind: "refuse" }
  | { kind: "silent" }
  | {
      kind: "whole";
      status: number;
      headers: Record<string, string>;
      body: string;
      event?: EventContent;
    }
  | {
      kind: "stream";
      status: number;
      headers: Record<string, string>;
      steps: Iterable<Step>;
      pace: Pace;
    };

/** How an event is put on the wire; every form is allowed by the SSE standard (WHATWG HTML §9.2.5). */
export interface Framing {
  lineEnd: string;
  /** Between `data:` and the payload. */
  space: string;
  /** Lines before the data line, without line ends. */
  before: string[];
  /** One data line for each line of an indented payload. */
  indented: boolean;
}

export const PLAIN_FRAMING: Framing = { lineEnd: "\n", space: " ", before: [], indented: false };
export const EVENT_STREAM = { "content-type": "text/event-stream; charset=utf-8" };
export const JSON_BODY = { "content-type": "application/json" };

/** A number too large for a double, which JSON can say and `JSON.stringify` cannot. */
export const OVERFLOWING_NUMBER = "@1e400";

const encoder = new TextEncoder();

export function text(content: string, event?: EventContent): Step {
  return { kind: "bytes", bytes: encoder.encode(content), event };
}

/** A chunk as one event of a stream. */
export function chunkEvent(chunk: unknown, framing = PLAIN_FRAMING): Step {
  return text(frame(toJson(chunk, framing.indented), framing), contentOf(chunk));
}

export function doneEvent(framing = PLAIN_FRAMING): Step {
  return text(frame("[DONE]", framing));
}

export function frame(payload: string, framing = PLAIN_FRAMING): string {
  const data = payload.split("\n").map((line) => `data:${framing.space}${line}`);
  return [...framing.before, ...data, "", ""].join(framing.lineEnd);
}

export function toJson(value: unknown, indented = false): string {
  return JSON.stringify(value, null, indented ? 2 : undefined).replaceAll(
    `"${OVERFLOWING_NUMBER}"`,
    "1e400",
  );
}

/** The frames of a recorded stream, byte for byte, each counted. */
export function recordedEvents(sse: Uint8Array): Step[] {
  const frames = new TextDecoder().decode(sse).split(/(?<=\n\n)/);
  return frames.map((recorded) => {
    const payload = recorded.startsWith("data:") ? recorded.slice("data:".length).trim() : "";
    return payload.startsWith("{")
      ? text(recorded, contentOf(JSON.parse(payload)))
      : text(recorded);
  });
}

/** Counts the content of all choices, of a chunk or of a whole answer. */
export function contentOf(body: unknown): EventContent {
  const { choices, usage } = asObject(body);
  const characters = asArray(choices)
    .map(asObject)
    .map((choice) => charactersOf(asObject(choice.delta ?? choice.message)))
    .reduce((sum, count) => sum + count, 0);
  return { characters, usage: usage ?? undefined };
}

function charactersOf(message: JsonObject): number {
  const parts = asArray(message.content).map((part) => asText(asObject(part).text));
  return [asText(message.content), ...parts].join("").length;
}

/** An error in OpenAI's form. */
export function refusal(status: number, message: string): Response {
  const error = { message, type: "invalid_request_error", param: null, code: null };
  return new Response(toJson({ error }), { status, headers: JSON_BODY });
}
