import { isFields } from "../../../lib/json.ts";
import type { ResultLine } from "../../batch-wire.ts";
import { AnswerRead } from "../../thread-work.ts";
import { parsedAnswer } from "../../transport/bounded-body.ts";
import { brokenAnswer } from "../../transport/call-failures.ts";

const OK = 200;
const NOT_RUN: ReadonlySet<unknown> = new Set(["canceled", "expired"]);

/**
 * Reads a line of results: `{custom_id, result: {type, message | error}}`. Returns an error in the form of a
 * live call. Throws ProviderFailure if the line has another form.
 */
export const resultLine = new AnswerRead(import.meta.url, (text): ResultLine => {
  const line = parsedAnswer(text);
  if (!isFields(line) || typeof line.custom_id !== "string" || !isFields(line.result)) {
    throw brokenAnswer("a result without its request");
  }
  const { custom_id: id, result } = line;
  if (NOT_RUN.has(result.type)) return { id };
  const { message, error } = result;
  if (result.type === "succeeded" && isFields(message)) {
    return { id, status: OK, body: JSON.stringify(message) };
  }
  if (result.type !== "errored" || !isFields(error)) {
    throw brokenAnswer("a result that is neither a message nor an error");
  }
  const body = isFields(error.error) ? error : { type: "error", error };
  return { id, status: OK, body: JSON.stringify(body) };
});
