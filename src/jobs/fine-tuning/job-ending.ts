import type { Trigger } from "../../../actors/fine-tuning-job/state.ts";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { eventsAfter, MAX_PROVIDER_EVENTS } from "../../../db/queries/fine-tuning-events.ts";
import { loadJob, resultFileOf } from "../../../db/queries/fine-tuning-jobs.ts";
import type { OutboxEvent } from "../../../db/queries/outbox.ts";
import type { NewTunedModel } from "../../../db/queries/tuned-models.ts";
import type { MoneyPort, SettlementFigures } from "../../billing/ledger/interface.ts";
import { feeOfCharge } from "../../billing/ledger/pending-charge.ts";
import { GatewayError } from "../../lib/errors.ts";
import { fineTuningJobFailed } from "../../lib/events/fine-tuning-job-failed.ts";
import { fineTuningJobSucceeded } from "../../lib/events/fine-tuning-job-succeeded.ts";
import { isFinal, type JobRecord, resultFileId } from "../../lib/fine-tuning-job.ts";
import { newId } from "../../lib/ids.ts";
import { chargeNanoUsd } from "../../lib/money.ts";
import type { JobFiles } from "../files/job-files.ts";
import type { Ending } from "./steps.ts";

/** The changes that take effect with the end of a job. */
interface JobEndingParts {
  readonly trigger: Trigger;
  readonly outbox?: OutboxEvent;
  readonly tunedModel?: NewTunedModel;
  /** Absent if nothing is charged. */
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

/** Returns `ft:<base model>:<suffix>:<end of the job's id>`, as in OpenAI's API. */
function tunedModelId(job: Pick<JobRecord, "id" | "baseModel" | "suffix">): string {
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
  const costNano = chargeNanoUsd(costFemto, 0n);
  const clampedNano = chargeNano > job.holdNano ? chargeNano - job.holdNano : 0n;
  return {
    chargeNano: chargeNano - clampedNano,
    feeNano: feeOfCharge(chargeNano - clampedNano, costNano),
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

interface EndJobDependencies {
  readonly sql: Database;
  readonly money: MoneyPort;
  readonly onError: (error: unknown) => void;
}

/**
 * Ends a job and its hold in one transaction. The hold is charged if there are figures, and released
 * otherwise. Throws the errors of `effect`; then nothing has ended. Returns false if another caller has
 * already ended the job.
 */
export async function endJob(
  { sql, money, onError }: EndJobDependencies,
  job: JobRecord,
  figures: SettlementFigures | undefined,
  effect: StatementEffect,
): Promise<boolean> {
  let hasRun = false;
  const also: StatementEffect = {
    ...effect,
    async run(transaction) {
      await effect.run(transaction);
      hasRun = true;
    },
  };
  if (figures === undefined) await money.releaseLong(job.requestId, also);
  else await money.settleLong(job.requestId, figures, also);
  if (hasRun) return true;
  const ended = await loadJob(job.id).run(sql);
  if (ended === undefined || isFinal(ended.status)) return false;
  // The hold ended earlier than the job. The job must still end.
  onError(new Error(`the hold of fine-tuning job ${job.id} had ended before the job`));
  const { author } = effect;
  await (author === undefined ? sql : authored(sql, author)).begin((transaction) =>
    effect.run(transaction),
  );
  return true;
}

/** The columns of the results file, taken from the events. */
const COLUMNS = ["step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy"] as const;

/**
 * Writes the metrics of a training to the job's results file, as a table with one line per step. An existing
 * file stays unchanged. Returns null if the organization has deleted the file.
 */
export async function writeResults(
  files: JobFiles,
  sql: Database,
  job: JobRecord,
): Promise<string | null> {
  const events = await eventsAfter(sql, job.id, 0, 2 * MAX_PROVIDER_EVENTS);
  const rows = events
    .filter(({ type }) => type === "metrics")
    .map(({ data }) => COLUMNS.map((column) => numberText(data[column])).join(","));
  const endedAtMs = job.finishedAtMs ?? job.createdAtMs;
  const result = resultFileOf(job, job.resultFile ?? resultFileId(job.id, endedAtMs));
  const table = new TextEncoder().encode(`${[COLUMNS.join(","), ...rows].join("\n")}\n`);
  try {
    // The previous version ended jobs without a file.
    if (job.resultFile === null) await files.announceResult(result);
    await files.writeResult(result, [table]);
    return result.id;
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    // The organization has already deleted the file.
    if (error.code === "file_not_found") return null;
    // The file has the status error, because there was no room for it before.
    if (error.code === "invalid_body") return result.id;
    if (error.code !== "quota_exceeded") throw error;
    await files.trigger(
      result,
      "fail",
      "The organization's storage quota has no room for the file.",
    );
    return result.id;
  }
}

function numberText(value: unknown): string {
  return typeof value === "number" && Number.isFinite(value) ? String(value) : "";
}
