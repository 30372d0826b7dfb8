import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import type { PieceReader } from "../../../providers/interface.ts";
import type { Transcript, TranscriptEvent } from "../../../providers/media.ts";
import { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { brokenAnswer } from "../../../providers/transport/call-failures.ts";
import { speakerSegment } from "./render-transcript.ts";

/** Writes a streamed transcript to the client as OpenAI's events. */
export class TranscriptAnswer extends StreamedAnswer<readonly TranscriptEvent[]> {
  readonly #hasSpeakers: boolean;
  #text = "";
  #transcript: Transcript | undefined;

  constructor(output: ByteBuffer, hasSpeakers: boolean) {
    super(output, 0);
    this.#hasSpeakers = hasSpeakers;
  }

  /** The transcript that the last event contains. */
  get transcript(): Pick<Transcript, "text" | "logprobs" | "reportedMs"> {
    return this.#transcript ?? { text: this.#text };
  }

  protected override take(events: readonly TranscriptEvent[]): void {
    this.noteEvents(events.length);
    for (const event of events) this.#takeEvent(event);
  }

  protected override takeEnd(): void {
    if (this.#transcript === undefined) throw brokenAnswer("a transcript without its end");
  }

  #takeEvent(event: TranscriptEvent): void {
    if (event.type === "error") throw event.failure;
    this.startedChoices = 1;
    if (event.type === "text") this.#takeText(event.text, event.logprobs);
    else if (event.type === "segment") {
      if (!this.#hasSpeakers) return;
      this.noteBegun();
      this.output.add(frameOf(speakerSegment(event.segment)));
    } else {
      this.#transcript = event.transcript;
      // A transcript of silence has no text, so no earlier event has begun the answer.
      this.noteBegun();
      this.finishedChoices = 1;
      if (event.transcript.usage !== undefined) this.noteUsage(event.transcript.usage);
      this.noteDone();
    }
  }

  #takeText(delta: string, logprobs: unknown): void {
    if (delta === "") return;
    this.noteBegun();
    this.#text += delta;
    this.meter(Buffer.byteLength(delta));
    const type = "transcript.text.delta";
    this.output.add(frameOf({ type, delta, ...(logprobs !== undefined && { logprobs }) }));
  }
}

export function frameOf(value: unknown): string {
  return `data: ${latin1OfText(JSON.stringify(value))}\n\n`;
}

/** Returns a complete transcript as the events of a stream, for models that do not stream. */
export function eventsOfTranscript(
  transcript: Transcript,
): PieceReader<readonly TranscriptEvent[]> {
  const { text, logprobs, segments = [] } = transcript;
  const extra = logprobs === undefined ? {} : { logprobs };
  let events: readonly TranscriptEvent[] | undefined = [
    ...segments.map((segment): TranscriptEvent => ({ type: "segment", segment })),
    { type: "text", text, ...extra },
    { type: "done", transcript },
  ];
  return {
    async read() {
      const value = events;
      events = undefined;
      return value === undefined ? { done: true } : { done: false, value };
    },
    async cancel() {
      events = undefined;
    },
  };
}
