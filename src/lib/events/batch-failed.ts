import { Type } from "typebox";
import { BATCH_FIELDS, SAMPLE_BATCH } from "./batch-completed.ts";
import { defineEvent } from "./definition.ts";

export const batchFailed = defineEvent({
  type: "batch.failed",
  summary:
    "The input file of a batch is invalid, so that no request was sent, or the batch expired before all requests had ended.",
  payload: Type.Object(
    {
      ...BATCH_FIELDS,
      /** The first error in the input file, or `batch_expired`. */
      error: Type.Object(
        { code: Type.String(), message: Type.String() },
        { additionalProperties: false },
      ),
    },
    { additionalProperties: false },
  ),
  sample: {
    ...SAMPLE_BATCH,
    request_counts: { total: 0, completed: 0, failed: 0 },
    output_file_id: null,
    error_file_id: null,
    error: { code: "invalid_jsonl", message: "Line 3 is not valid JSON." },
  },
});
