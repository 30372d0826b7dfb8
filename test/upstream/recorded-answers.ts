import {
  STREAMS as ANTHROPIC_STREAMS,
  WHOLE as ANTHROPIC_WHOLE,
  expectedOf,
  messageOfStream,
  streamText,
  wholeMessage,
} from "../support/anthropic-recordings.ts";
import { bedrockRecordings } from "./bedrock-recordings.ts";
import { COHERE_RECORDINGS, cohereRecording } from "./cohere-recordings.ts";
import { geminiRecordings } from "./gemini-recordings.ts";
import { listRecordings, loadRecording } from "./recordings.ts";
import { responsesRecordings } from "./responses-recordings.ts";

/** Recorded answers of all wires, each with what it says, read without the gateway's adapters. */
export interface RecordedAnswer {
  /** Its path below test/fixtures, and which exchange where the file has several. */
  readonly name: string;
  readonly stream: boolean;
  readonly contentType: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly said: Said;
}

/** What a client has to get of an answer. */
export interface Said {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: readonly { readonly name: string; readonly input: unknown }[];
  readonly finish: string | null;
  /** Null where the provider reported none. */
  readonly tokens: Tokens | null;
}

export interface Tokens {
  /** Cached and written ones included. */
  readonly prompt: number;
  readonly cached: number;
  readonly written: number;
  /** Reasoning included. */
  readonly completion: number;
  readonly reasoning: number;
}

/** Another wire's recordings are one more line here. */
const PROVIDER_FACTORIES: readonly (() => RecordedAnswer[])[] = [
  openAi,
  responses,
  anthropic,
  bedrock,
  gemini,
  cohere,
];

export function recordedAnswers(): RecordedAnswer[] {
  return PROVIDER_FACTORIES.flatMap((wire) => wire()).sort((one, other) =>
    one.name < other.name ? -1 : 1,
  );
}

const EVENTS = "text/event-stream; charset=utf-8";
const JSON_TYPE = "application/json";

function answer(name: string, stream: boolean, text: string, said: Said): RecordedAnswer {
  const contentType = stream ? EVENTS : JSON_TYPE;
  return { name, stream, contentType, bytes: new TextEncoder().encode(text), said };
}

function openAi(): RecordedAnswer[] {
  return listRecordings().map((name) => {
    const { stream, sse, json, expected } = loadRecording(name);
    const text = stream ? new TextDecoder().decode(sse) : JSON.stringify(json);
    const { content, reasoning, toolCalls, finishReason, usage } = expected;
    return answer(name, stream, text, {
      content,
      reasoning,
      calls: toolCalls.map((call) => ({ name: call.name, input: JSON.parse(call.arguments) })),
      finish: finishReason,
      tokens: usage && {
        prompt: usage.promptTokens,
        cached: usage.cachedTokens,
        written: 0,
        completion: usage.completionTokens,
        reasoning: usage.reasoningTokens,
      },
    });
  });
}

function responses(): RecordedAnswer[] {
  return responsesRecordings().map(({ name, stream, text, said }) => {
    const { content, reasoning, calls, tokens } = said;
    return answer(name, stream, text, {
      content,
      reasoning,
      calls: calls.map((call) => ({ name: call.name, input: JSON.parse(call.arguments) })),
      finish: calls.length > 0 ? "tool_calls" : "stop",
      tokens: {
        prompt: tokens.input,
        cached: tokens.cached,
        written: 0,
        completion: tokens.output,
        reasoning: tokens.reasoning,
      },
    });
  });
}

function anthropic(): RecordedAnswer[] {
  return [...ANTHROPIC_STREAMS, ...ANTHROPIC_WHOLE].map((name) => {
    const stream = ANTHROPIC_STREAMS.includes(name);
    const text = stream ? streamText(name) : JSON.stringify(wholeMessage(name));
    const message = stream ? messageOfStream(text) : wholeMessage(name);
    const { content, reasoning, calls, finish, tokens } = expectedOf(message);
    return answer(name, stream, text, {
      content,
      reasoning,
      calls: calls.map((call) => ({ name: call.name, input: call.input })),
      finish,
      tokens: {
        prompt: tokens.input + tokens.cached + tokens.written,
        cached: tokens.cached,
        written: tokens.written,
        completion: tokens.output,
        reasoning: tokens.thinking,
      },
    });
  });
}

const BEDROCK_FINISHES: Readonly<Record<string, string>> = {
  end_turn: "stop",
  tool_use: "tool_calls",
};

function bedrock(): RecordedAnswer[] {
  return bedrockRecordings().map(({ name, stream, bytes, expected }) => ({
    name,
    stream,
    contentType: stream ? "application/vnd.amazon.eventstream" : JSON_TYPE,
    bytes: Uint8Array.from(bytes),
    said: {
      content: expected.content,
      reasoning: expected.reasoning,
      calls: expected.calls.map((call) => ({ name: call.name, input: call.input })),
      finish: BEDROCK_FINISHES[expected.stopReason] ?? null,
      tokens: {
        prompt: expected.inputTokens,
        cached: 0,
        written: 0,
        completion: expected.outputTokens,
        reasoning: 0,
      },
    },
  }));
}

function gemini(): RecordedAnswer[] {
  return geminiRecordings().map(({ name, stream, bytes, expected }) => {
    const { content, calls, promptTokens, completionTokens, reasoningTokens } = expected;
    return answer(name, stream, new TextDecoder().decode(bytes), {
      content,
      reasoning: "",
      calls: calls.map((call) => ({ name: call.name, input: call.args })),
      finish: expected.finishReason !== "STOP" ? null : calls.length > 0 ? "tool_calls" : "stop",
      tokens: {
        prompt: promptTokens,
        cached: 0,
        written: 0,
        completion: completionTokens,
        reasoning: reasoningTokens,
      },
    });
  });
}

const COHERE_FINISHES: Readonly<Record<string, string>> = {
  COMPLETE: "stop",
  TOOL_CALL: "tool_calls",
};

function cohere(): RecordedAnswer[] {
  return COHERE_RECORDINGS.map((name) => {
    const { stream, text, said } = cohereRecording(name);
    const { content, reasoning, calls, finishReason, billed, tokens } = said;
    return answer(name, stream, text, {
      content,
      reasoning,
      calls: calls.map((call) => ({ name: call.name, input: JSON.parse(call.arguments) })),
      finish: COHERE_FINISHES[finishReason] ?? null,
      tokens: {
        prompt: billed.input,
        // Of the billed prompt the share that was cached of the whole one.
        cached: Math.floor((billed.input * tokens.cached) / tokens.input),
        written: 0,
        completion: billed.output,
        reasoning: 0,
      },
    });
  });
}
