import type { Completion } from "./completion.ts";
import type { JsonObject } from "./json.ts";
import type { Answer, Pace } from "./wire.ts";

/** What a test may set about an answer. All of it is JSON, so that it can be sent to a separate process too. */
export interface BehaviourOptions extends Pace {
  /** Text of the answer; without it the last user message is echoed. */
  content?: string;
  /** Sent before the content, as `reasoning_content`. */
  reasoning?: string;
  toolCalls?: { name: string; arguments: string }[];
  /** In how many events the content is streamed. */
  events?: number;
  /** Sent as it is instead of the honest count; null sends none. */
  usage?: unknown;
  /** Before anything is answered. */
  firstDelayMs?: number;
  /** After each event of a stream. */
  delayMs?: number;
  /** How many events pass before the trouble that the behaviour is named for. */
  afterEvents?: number;
  status?: number;
  message?: string;
  /** Further headers of the answer. */
  headers?: Record<string, string>;
  retryAfter?: RetryAfter;
  location?: string;
  /** Which of the absurd usages. */
  which?: string;
  /** Bytes of the content of a huge event. */
  contentBytes?: number;
  /** Sent as the events of a stream, a text as it stands; unstreamed, the first of them is the answer. */
  frames?: unknown[];
  /** Name of the recording to replay. */
  recording?: string;
}

/** Each member set is one header: `Retry-After` in seconds or as a date, `retry-after-ms`, or a text as it is. */
export interface RetryAfter {
  seconds?: number;
  dateInSeconds?: number;
  milliseconds?: number;
  raw?: string;
}

/** One request as a behaviour sees it. */
export interface Call {
  request: JsonObject;
  stream: boolean;
  includeUsage: boolean;
  completion: Completion;
  options: BehaviourOptions;
  nowMs: number;
}

export type BehaviourFunction = (call: Call) => Answer;
