import type { Transcript } from "../../../providers/media.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";

/**
 * Applies guardrails to a transcript. The segments are checked as one text, so that matches across segments
 * are found.
 */
export async function screenedTranscript(
  transcript: Transcript,
  guard: CallGuard,
): Promise<Transcript> {
  const { text, segments } = transcript;
  const parts = segments?.map(({ text: segmentText }) => ({
    text: /^\s/.test(segmentText) ? segmentText : ` ${segmentText}`,
  }));
  const screened = await guard.output({ text, segments: parts });
  return {
    ...transcript,
    text: screened.text,
    segments: segments?.map((segment, at) => {
      const screenedText = screened.segments![at]!.text;
      if (screenedText === parts![at]!.text) return segment;
      // The details can contain the tokens of the original text.
      const { details: _, ...rest } = segment;
      return { ...rest, text: screenedText.replace(/^ /, "") };
    }),
  };
}
