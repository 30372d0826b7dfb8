import { isFields } from "../../../lib/json.ts";
import type { ResultLine } from "../../batch-wire.ts";
import { AnswerRead } from "../../thread-work.ts";
import { parsedAnswer } from "../../transport/bounded-body.ts";
import { brokenAnswer } from "../../transport/call-failures.ts";
import type { FailureContext } from "../../transport/status-failure.ts";
import { failureOfErrorBody } from "../failure-mapping.ts";

/** Codes of requests that were not run. */
const NOT_RUN: ReadonlySet<unknown> = new Set([
  "batch_expired",
  "batch_cancelled",
  "batch_canceled",
]);

interface LineOptions {
  readonly failureContext: FailureContext;
}

/**
 * Reads a line of a results file: `{custom_id, response: {status_code, body}, error}`, where response or error is null.
 * Throws ProviderFailure if the line has another form.
 */
export const resultLine = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: LineOptions): ResultLine => {
    const line = parsedAnswer(text);
    if (!isFields(line) || typeof line.custom_id !== "string") {
      throw brokenAnswer("a result without the id of its request");
    }
    const { custom_id: id, response, error } = line;
    if (isFields(response)) {
      const { status_code: status, body } = response;
      if (!isStatus(status) || !isFields(body))
        throw brokenAnswer("a result that is not a response");
      return { id, status, body: JSON.stringify(body) };
    }
    if (!isFields(error) && typeof error !== "string") {
      throw brokenAnswer("a result without a response");
    }
    if (isFields(error) && NOT_RUN.has(error.code)) return { id };
    const { kind, message } = failureOfErrorBody({ error }, failureContext);
    return { id, failed: { kind, message } };
  },
);

function isStatus(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 200 && (value as number) < 600;
}
