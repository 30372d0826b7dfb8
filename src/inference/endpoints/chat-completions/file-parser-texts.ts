import { AnswerRead } from "../../../providers/thread-work.ts";
import { withTexts } from "./file-parser.ts";
import type { ChatRequest } from "./request.ts";

/** Returns the text of a body with the texts of its documents inserted. Runs in a work thread. */
export const textWithDocuments = new AnswerRead(
  import.meta.url,
  (text, { texts }: { readonly texts: readonly string[] }): { body: string | Uint8Array } => ({
    body: JSON.stringify(withTexts(JSON.parse(text) as ChatRequest, texts)),
  }),
);
