import { isFields } from "../../lib/json.ts";
import { rankingOf } from "../ranking.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";

/** Reads an answer. Throws ProviderFailure unless it ranks exactly the documents of the request. */
export const rankingRead = new AnswerRead(
  import.meta.url,
  (text, { documents }: { readonly documents: number }) => {
    const answer = parsedAnswer(text);
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    return rankingOf(answer, documents);
  },
);
