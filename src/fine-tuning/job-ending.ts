import type { Trigger } from "../../actors/fine-tuning-job/state.ts";
import type { OutboxEvent } from "../../db/queries/outbox.ts";
import type { NewTunedModel } from "../../db/queries/tuned-models.ts";
import { fineTuningJobFailed } from "../events/fine-tuning-job-failed.ts";
import { fineTuningJobSucceeded } from "../events/fine-tuning-job-succeeded.ts";
import type { JobRecord } from "../lib/fine-tuning-job.ts";
import { newId } from "../lib/ids.ts";
import { chargeNanoUsd } from "../lib/money.ts";
import type { SettlementFigures } from "../money/interface.ts";
import type { Ending } from "./step.ts";

/** Everything that becomes true with the end of a job. */
export interface JobEndingParts {
  readonly trigger: Trigger;
  readonly outbox?: OutboxEvent;
  readonly tunedModel?: NewTunedModel;
  /** Absent where nothing is charged. */
  readonly figures?: SettlementFigures;
}

const MAX_LATENCY_MS = 2_147_483_647;
const MODEL_ID_CHARACTERS = 12;

export function partsOfEnding(job: JobRecord, ending: Ending, nowMs: number): JobEndingParts {
  switch (ending.kind) {
    case "cancel":
      return { trigger: { kind: "cancel" } };
    case "fail":
      return {
        trigger: ending,
        outbox: fineTuningJobFailed.build(newId("evt"), job.organizationId, {
          job_id: job.id,
          model: job.baseModel,
          fine_tuned_model: null,
          error: ending.error,
        }),
      };
    case "trained": {
      const fineTunedModel = tunedModelId(job);
      const counted = (job.fileTokens ?? 0) * job.hyperparameters.n_epochs;
      const trainedTokens = ending.trainedTokens ?? counted;
      return {
        trigger: { kind: "trained", fineTunedModel, trainedTokens },
        outbox: fineTuningJobSucceeded.build(newId("evt"), job.organizationId, {
          job_id: job.id,
          model: job.baseModel,
          fine_tuned_model: fineTunedModel,
          error: null,
        }),
        tunedModel: {
          id: fineTunedModel,
          organizationId: job.organizationId,
          jobId: job.id,
          baseModel: job.baseModel,
          suffix: job.suffix,
          providerId: job.providerId,
          providerModel: ending.providerModel,
        },
        figures: chargeOf(job, trainedTokens, ending.trainedTokens === undefined, nowMs),
      };
    }
  }
}

/** `ft:<base model>:<suffix>:<end of the job's id>`, after OpenAI's manner. */
export function tunedModelId(job: Pick<JobRecord, "id" | "baseModel" | "suffix">): string {
  return `ft:${job.baseModel}:${job.suffix ?? ""}:${job.id.slice(-MODEL_ID_CHARACTERS)}`;
}

function chargeOf(
  job: JobRecord,
  trainedTokens: number,
  estimated: boolean,
  nowMs: number,
): SettlementFigures {
  const costFemto = BigInt(trainedTokens) * job.tokenFemto;
  const chargeNano = chargeNanoUsd(costFemto, BigInt(job.feeBasisPoints));
  const clampedNano = chargeNano > job.holdNano ? chargeNano - job.holdNano : 0n;
  return {
    chargeNano: chargeNano - clampedNano,
    clampedNano,
    promptTokens: trainedTokens,
    cachedPromptTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    quantities: null,
    estimated,
    model: job.baseModel,
    provider: job.providerId,
    status: 200,
    latencyMs: Math.max(0, Math.min(Math.round(nowMs - job.createdAtMs), MAX_LATENCY_MS)),
    details: { fine_tuning_job: job.id },
    description: `Fine-tuning of ${job.baseModel}`,
  };
}
