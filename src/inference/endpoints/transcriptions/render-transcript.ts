import type { Usage } from "../../../lib/usage.ts";
import type { Transcript, TranscriptSegment } from "../../../providers/media.ts";
import type { TranscriptFormat, TranscriptionRequest } from "./schema.ts";
import { subRip, webVtt } from "./subtitles.ts";

export const TRANSCRIPT_TYPES: Readonly<Record<TranscriptFormat, string>> = {
  json: "application/json",
  verbose_json: "application/json",
  diarized_json: "application/json",
  text: "text/plain; charset=utf-8",
  srt: "application/x-subrip; charset=utf-8",
  vtt: "text/vtt; charset=utf-8",
};

export interface TranscriptFacts {
  readonly task: "transcribe" | "translate";
  readonly format: TranscriptFormat;
  readonly fields: TranscriptionRequest;
  readonly durationMs: number;
  readonly usage: Usage;
  readonly costUsd: number;
}

/** Returns the body of a complete answer in the requested format. */
export function renderTranscript(transcript: Transcript, facts: TranscriptFacts): string {
  const { text, segments = [] } = transcript;
  switch (facts.format) {
    case "text":
      return `${text}\n`;
    case "srt":
      return subRip(segments);
    case "vtt":
      return webVtt(segments);
    case "verbose_json":
      return JSON.stringify(verboseBody(transcript, facts));
    case "diarized_json":
      return JSON.stringify({
        task: facts.task,
        duration: secondsOf(facts.durationMs),
        text,
        segments: segments.map(speakerSegment),
        usage: usageBody(facts.usage, facts.costUsd),
      });
    case "json":
      return JSON.stringify(plainBody(transcript, facts));
  }
}

function verboseBody(transcript: Transcript, facts: TranscriptFacts): object {
  const { task, fields, durationMs } = facts;
  const { text, segments = [], words } = transcript;
  const granularities = fields.timestamp_granularities ?? ["segment"];
  return {
    task,
    language:
      task === "translate" ? "english" : (transcript.language ?? fields.language ?? "unknown"),
    duration: secondsOf(durationMs),
    text,
    ...(granularities.includes("segment") && {
      segments: segments.map(({ id, start, end, text: segmentText, details }) => ({
        ...details,
        id,
        start,
        end,
        text: segmentText,
      })),
    }),
    ...(granularities.includes("word") && {
      words: (words ?? []).map(({ word, start, end }) => ({ word, start, end })),
    }),
    usage: usageBody(facts.usage, facts.costUsd),
  };
}

/** Returns the body of the json format, which is also the content of a stream's last event. */
export function plainBody(
  { text, logprobs }: Pick<Transcript, "text" | "logprobs">,
  { usage, costUsd }: Pick<TranscriptFacts, "usage" | "costUsd">,
): object {
  return { text, ...(logprobs !== undefined && { logprobs }), usage: usageBody(usage, costUsd) };
}

/** Returns a segment in OpenAI's form for transcripts with speakers. Streams use the same form. */
export function speakerSegment({ id, start, end, text, speaker = "A" }: TranscriptSegment): object {
  const name = `seg_${String(id + 1).padStart(3, "0")}`;
  return { type: "transcript.text.segment", id: name, start, end, text, speaker };
}

function usageBody(usage: Usage, cost: number): object {
  const { promptTokens, completionTokens, audioPromptTokens = 0, durationMs = 0 } = usage;
  if (promptTokens + completionTokens === 0) {
    return { type: "duration", seconds: secondsOf(durationMs), cost };
  }
  return {
    type: "tokens",
    input_tokens: promptTokens,
    input_token_details: {
      text_tokens: promptTokens - audioPromptTokens,
      audio_tokens: audioPromptTokens,
    },
    output_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    cost,
  };
}

function secondsOf(durationMs: number): number {
  return durationMs / 1_000;
}
