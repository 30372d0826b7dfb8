import { jsonValue } from "../../../lib/json.ts";
import { AnswerRead } from "../../../providers/thread-work.ts";
import { documentsIn, type SentDocument } from "./file-parser.ts";
import { checkChat } from "./preset.ts";
import type { ChatRequest } from "./request.ts";

/**
 * Returns the documents in the text of a body. Returns none if the body is invalid; the endpoint rejects it
 * later. Runs in a work thread.
 */
export const documentsOfText = new AnswerRead(
  import.meta.url,
  (text): { documents: readonly SentDocument[] } => {
    const request = jsonValue(text) as ChatRequest;
    try {
      checkChat(request);
    } catch {
      return { documents: [] };
    }
    return { documents: documentsIn(request) };
  },
);
