import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

/** The fields of both events of a job's end. */
export const JOB_FIELDS = { job_id: Type.String(), model: Type.String() };
export const SAMPLE_JOB = { job_id: "ftjob_test", model: "sandbox/chat-2026-01-01" };

export const fineTuningJobSucceeded = defineEvent({
  type: "fine_tuning.job.succeeded",
  summary: "A fine-tuning job has created its model.",
  payload: Type.Object(
    { ...JOB_FIELDS, fine_tuned_model: Type.String(), error: Type.Null() },
    { additionalProperties: false },
  ),
  sample: { ...SAMPLE_JOB, fine_tuned_model: "ft:test", error: null },
});
