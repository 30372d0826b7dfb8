import type { JobEvent } from "../../db/queries/fine-tuning-events.ts";
import type { JobRecord } from "../lib/fine-tuning-job.ts";

/** A job on the wire (spec 2.12). */
export function jobShape(job: JobRecord) {
  return {
    id: job.id,
    object: "fine_tuning.job",
    model: job.baseModel,
    created_at: seconds(job.createdAtMs),
    finished_at: job.finishedAtMs === null ? null : seconds(job.finishedAtMs),
    status: job.status,
    training_file: job.trainingFile,
    validation_file: job.validationFile,
    hyperparameters: job.hyperparameters,
    fine_tuned_model: job.fineTunedModel,
    estimated_finish: job.estimatedFinishMs === null ? null : seconds(job.estimatedFinishMs),
    error: job.error,
    trained_tokens: job.trainedTokens,
    organization_id: job.organizationId,
    result_files: job.resultFile === null ? [] : [job.resultFile],
    seed: job.seed,
    suffix: job.suffix,
    metadata: job.metadata,
  };
}

export function eventShape(event: JobEvent) {
  return {
    object: "fine_tuning.job.event",
    id: event.id,
    created_at: seconds(event.createdAtMs),
    level: event.level,
    message: event.message,
    type: event.type,
    data: event.data,
  };
}

function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
