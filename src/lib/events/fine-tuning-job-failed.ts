import { Type } from "typebox";
import { defineEvent } from "./definition.ts";
import { JOB_FIELDS, SAMPLE_JOB } from "./fine-tuning-job-succeeded.ts";

export const fineTuningJobFailed = defineEvent({
  type: "fine_tuning.job.failed",
  summary: "A fine-tuning job has failed.",
  payload: Type.Object(
    {
      ...JOB_FIELDS,
      fine_tuned_model: Type.Null(),
      error: Type.Object(
        {
          code: Type.String(),
          message: Type.String(),
          param: Type.Union([Type.String(), Type.Null()]),
        },
        { additionalProperties: false },
      ),
    },
    { additionalProperties: false },
  ),
  sample: {
    ...SAMPLE_JOB,
    fine_tuned_model: null,
    error: { code: "invalid_format", message: "An example is not in chat format.", param: null },
  },
});
