import type { TranscriptSegment } from "../../../providers/media.ts";

const MS_PER_SECOND = 1_000;
const LINE_END = /\r\n|[\r\n\v\f\u0085\u2028\u2029]/;
const CONTROLS = /\p{Cc}/gu;

/**
 * Returns SubRip subtitles. SubRip has no escapes, so a text that would read as the timing of another cue is
 * altered.
 */
export function subRip(segments: readonly TranscriptSegment[]): string {
  return cuesOf(segments)
    .map(({ start, end, lines }, at) => {
      const text = lines.map((line) => line.replaceAll("-->", "->")).join("\n");
      return `${at + 1}\n${timeOf(start, ",")} --> ${timeOf(end, ",")}\n${text}\n\n`;
    })
    .join("");
}

/** Returns WebVTT subtitles (https://www.w3.org/TR/webvtt1/). Texts are escaped as in HTML. */
export function webVtt(segments: readonly TranscriptSegment[]): string {
  const cues = cuesOf(segments).map(({ start, end, lines }) => {
    const text = lines.map(escaped).join("\n");
    return `${timeOf(start, ".")} --> ${timeOf(end, ".")}\n${text}\n\n`;
  });
  return `WEBVTT\n\n${cues.join("")}`;
}

interface Cue {
  readonly start: number;
  readonly end: number;
  /** Lines of the text. None is empty, because an empty line ends a cue. */
  readonly lines: readonly string[];
}

function cuesOf(segments: readonly TranscriptSegment[]): Cue[] {
  return segments.flatMap(({ start, end, text }) => {
    const lines = text
      .split(LINE_END)
      .map((line) => line.replace(CONTROLS, "").trim())
      .filter((line) => line !== "");
    return lines.length === 0 ? [] : [{ start, end: Math.max(start, end), lines }];
  });
}

function escaped(line: string): string {
  return line.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function timeOf(seconds: number, separator: string): string {
  const ms = Math.round(seconds * MS_PER_SECOND);
  const padded = (value: number, digits: number) => String(Math.floor(value)).padStart(digits, "0");
  const clock = [ms / 3_600_000, (ms / 60_000) % 60, (ms / MS_PER_SECOND) % 60];
  return `${clock.map((part) => padded(part, 2)).join(":")}${separator}${padded(ms % MS_PER_SECOND, 3)}`;
}
