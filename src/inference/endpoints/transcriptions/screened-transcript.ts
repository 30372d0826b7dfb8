import type { Transcript } from "../../../providers/media.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";

/** What is said across several segments is found too: they are looked through as one text. */
export async function screenedTranscript(
  transcript: Transcript,
  guard: CallGuard,
): Promise<Transcript> {
  const { text, segments } = transcript;
  const parts = segments?.map(({ text: said }) => ({ text: /^\s/.test(said) ? said : ` ${said}` }));
  const screened = await guard.output({ text, segments: parts });
  return {
    ...transcript,
    text: screened.text,
    segments: segments?.map((segment, at) => {
      const said = screened.segments![at]!.text;
      if (said === parts![at]!.text) return segment;
      // Their details may name the tokens of the text.
      const { details: _, ...rest } = segment;
      return { ...rest, text: said.replace(/^ /, "") };
    }),
  };
}
