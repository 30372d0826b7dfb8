import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

/** The fields of both events of a batch's end. */
export const BATCH_FIELDS = {
  batch_id: Type.String(),
  key_id: Type.String(),
  endpoint: Type.String(),
  request_counts: Type.Object(
    { total: Type.Integer(), completed: Type.Integer(), failed: Type.Integer() },
    { additionalProperties: false },
  ),
  output_file_id: Type.Union([Type.String(), Type.Null()]),
  error_file_id: Type.Union([Type.String(), Type.Null()]),
};

export const SAMPLE_BATCH = {
  batch_id: "batch_test",
  key_id: "key_test",
  endpoint: "/v1/chat/completions",
};

export const batchCompleted = defineEvent({
  type: "batch.completed",
  summary:
    "All requests of a batch have ended, and its result files are written. Some requests can have failed.",
  payload: Type.Object(BATCH_FIELDS, { additionalProperties: false }),
  sample: {
    ...SAMPLE_BATCH,
    request_counts: { total: 100, completed: 99, failed: 1 },
    output_file_id: "file_output",
    error_file_id: "file_errors",
  },
});
