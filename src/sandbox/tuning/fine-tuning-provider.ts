import type { Database } from "../../../db/client.ts";
import {
  cancelSandboxJob,
  deleteSandboxFile,
  deleteSandboxModel,
  findSandboxFile,
  findSandboxTuning,
  insertSandboxFile,
  type SandboxTuning,
  startSandboxJob,
} from "../../../db/queries/sandbox-tunings.ts";
import type { Clock } from "../../lib/clock.ts";
import { readLines } from "../../lib/json-lines.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import type {
  FineTuningProvider,
  ProviderJob,
  ProviderJobEvent,
  TrainingRequest,
  TrainingUpload,
} from "../../providers/fine-tuning.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import { countTokens } from "../tokens.ts";
import { learn } from "./learned-answers.ts";
import { partsOfTunedName, type SandboxTunedModels, tunedModelName } from "./tuned-models.ts";

/** Apparent duration of a training, including the waiting time, in milliseconds. */
export const SANDBOX_TRAINING_MS = 2_000;
const WAITING_MS = 200;
const STEPS = 4;
const FIRST_LOSS = 2;
/** Longest line of a training file, in bytes: far above any model's context. */
const MAX_LINE_BYTES = 32 * 1024 * 1024;
/** Suffix with which a training fails, for drills. */
export const FAILING_SUFFIX = "fail";

export interface SandboxTuningDependencies {
  readonly sql: Database;
  /** Worker thread that learns from long lines. */
  readonly workThread: Pick<FairWorkThread, "call">;
  readonly clock: Clock;
  readonly tunedModels: SandboxTunedModels;
}

/**
 * The sandbox's fine-tuning. A tuned model answers with the answers of its training file. Files and jobs are
 * rows in the database, so all instances see them and they survive restarts. The progress of a job follows
 * from its age.
 */
export class SandboxFineTuning implements FineTuningProvider {
  readonly #dependencies: SandboxTuningDependencies;

  constructor(dependencies: SandboxTuningDependencies) {
    this.#dependencies = dependencies;
  }

  async uploadFile(file: TrainingUpload, signal: AbortSignal): Promise<string> {
    const id = `tuning-${Bun.randomUUIDv7().replaceAll("-", "")}`;
    const { workThread } = this.#dependencies;
    const { learned, tokens } = await learn(readLines(file.content, MAX_LINE_BYTES), (call) =>
      workThread.call(file.owner, call, signal),
    );
    const learnedJson = JSON.stringify(learned);
    await insertSandboxFile(this.#dependencies.sql, { id, name: file.name, learnedJson, tokens });
    return id;
  }

  findFile(name: string): Promise<string | undefined> {
    return findSandboxFile(this.#dependencies.sql, name);
  }

  deleteFile(fileId: string): Promise<void> {
    return deleteSandboxFile(this.#dependencies.sql, fileId, FAILING_SUFFIX);
  }

  async createJob(request: TrainingRequest): Promise<ProviderJob> {
    const isFailing = request.suffix === FAILING_SUFFIX;
    const isStarted = await startSandboxJob(this.#dependencies.sql, request.trainingFileId, {
      tag: request.tag,
      model: isFailing ? FAILING_SUFFIX : request.model,
      epochs: request.hyperparameters.n_epochs,
      startedAtMs: this.#dependencies.clock.nowMs(),
    });
    if (!isStarted) {
      throw new ProviderFailure("rejected", "the training file does not exist or is in use", {
        status: 400,
        param: "training_file",
      });
    }
    return this.readJob(request.trainingFileId);
  }

  async findJobs(tag: string): Promise<ProviderJob[]> {
    const tuning = await findSandboxTuning(this.#dependencies.sql, { tag });
    return tuning === undefined ? [] : [this.#jobOf(tuning)];
  }

  async readJob(jobId: string): Promise<ProviderJob> {
    const tuning = await findSandboxTuning(this.#dependencies.sql, { id: jobId });
    if (tuning?.job === undefined) throw noSuchJob(jobId);
    return this.#jobOf(tuning);
  }

  async readEvents(jobId: string): Promise<ProviderJobEvent[]> {
    const tuning = await findSandboxTuning(this.#dependencies.sql, { id: jobId });
    if (tuning?.job === undefined) throw noSuchJob(jobId);
    const { startedAtMs, cancelledAtMs, model } = tuning.job;
    const ageMs = (cancelledAtMs ?? this.#dependencies.clock.nowMs()) - startedAtMs;
    const steps = model === FAILING_SUFFIX ? STEPS / 2 : STEPS;
    return Array.from({ length: steps }, (_, index) => index + 1)
      .filter((step) => ageMs >= (SANDBOX_TRAINING_MS * step) / STEPS)
      .map((step) => stepEvent(tuning.id, startedAtMs, step));
  }

  async cancelJob(jobId: string): Promise<void> {
    const nowMs = this.#dependencies.clock.nowMs();
    await cancelSandboxJob(this.#dependencies.sql, jobId, nowMs, nowMs - SANDBOX_TRAINING_MS);
  }

  async deleteModel(model: string): Promise<void> {
    const parts = partsOfTunedName(model);
    if (parts === undefined) return;
    this.#dependencies.tunedModels.forget(parts.tuningId);
    await deleteSandboxModel(this.#dependencies.sql, parts.tuningId);
  }

  async countTokens(text: string): Promise<number> {
    return countTokens(text);
  }

  #jobOf({ id, tokens, job }: SandboxTuning): ProviderJob {
    const { startedAtMs, cancelledAtMs, epochs, model } = job!;
    const ageMs = this.#dependencies.clock.nowMs() - startedAtMs;
    const isFailing = model === FAILING_SUFFIX;
    const hasEnded = ageMs >= (isFailing ? SANDBOX_TRAINING_MS / 2 : SANDBOX_TRAINING_MS);
    const shared = {
      id,
      tunedModel: undefined,
      trainedTokens: undefined,
      failure: undefined,
      estimatedFinish: Math.ceil((startedAtMs + SANDBOX_TRAINING_MS) / 1000),
    };
    if (cancelledAtMs !== undefined) return { ...shared, status: "cancelled" };
    if (!hasEnded) return { ...shared, status: ageMs < WAITING_MS ? "waiting" : "running" };
    if (isFailing) {
      const message = `the sandbox fails trainings with the suffix "${FAILING_SUFFIX}"`;
      return { ...shared, status: "failed", failure: { code: "training_failed", message } };
    }
    const tunedModel = tunedModelName(model, id);
    return { ...shared, status: "succeeded", tunedModel, trainedTokens: tokens * epochs };
  }
}

function stepEvent(tuningId: string, startedAtMs: number, step: number): ProviderJobEvent {
  const loss = FIRST_LOSS / 2 ** step;
  return {
    id: `${tuningId}-${step}`,
    createdAt: Math.floor((startedAtMs + (SANDBOX_TRAINING_MS * step) / STEPS) / 1000),
    level: "info",
    message: `Step ${step}/${STEPS}: training loss=${loss.toFixed(2)}`,
    type: "metrics",
    data: { step, total_steps: STEPS, train_loss: loss },
  };
}

function noSuchJob(jobId: string): ProviderFailure {
  return new ProviderFailure("misconfigured", `the sandbox has no job ${jobId}`, { status: 404 });
}
