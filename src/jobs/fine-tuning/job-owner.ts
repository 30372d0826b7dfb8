import type { fineTuningJobActor, JobMove } from "../../../actors/fine-tuning-job/actor.ts";
import { nextStep, type Step, type Trigger } from "../../../actors/fine-tuning-job/state.ts";
import { OwnedRun, OwnedRuns } from "../../../actors/runtime/owned-runs.ts";
import {
  guardLease,
  type Lease,
  LeaseLostError,
  type Ownership,
} from "../../../actors/runtime/ownership.ts";
import type { ActorRegistry } from "../../../actors/runtime/registry.ts";
import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import {
  FINE_TUNING_JOB,
  findDueJobs,
  JobMovedError,
} from "../../../db/queries/fine-tuning-jobs.ts";
import { findDeletedTunedModel } from "../../../db/queries/tuned-models.ts";
import type { MoneyPort } from "../../billing/ledger/interface.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import { allButOne, FairSemaphore } from "../../lib/fair-share.ts";
import { isFinal, type JobRecord, type NewJobEvent } from "../../lib/fine-tuning-job.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import type { CatalogueViews } from "../../providers/catalogue/catalogue-views.ts";
import type { FineTuningProvider } from "../../providers/fine-tuning.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type { Trainers } from "../../providers/registry.ts";
import type { JobFiles } from "../files/job-files.ts";
import { endJob, partsOfEnding, writeResults } from "./job-ending.ts";
import {
  afterDeadline,
  afterFailure,
  CALL_TIMEOUT_MS,
  check,
  cleanUp,
  type Ending,
  follow,
  jobMessage,
  order,
  type StepContext,
  upload,
} from "./steps.ts";

type FineTuningJobActors = ActorRegistry<
  Awaited<ReturnType<(typeof fineTuningJobActor)["load"]>>,
  (typeof fineTuningJobActor)["verbs"]
>;

interface JobOwnerDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly jobs: FineTuningJobActors;
  readonly money: MoneyPort;
  readonly providers: Trainers;
  readonly files: JobFiles;
  readonly models: CatalogueViews;
  /** Runs work that would block the event loop. */
  readonly workThread: Pick<FairWorkThread, "call">;
  readonly clock: Clock;
  random(): number;
  warn(message: string): void;
  onError(error: unknown): void;
}

/**
 * Maximum wait in milliseconds while the job is held. A job with a longer wait is released, and an instance
 * claims it again when it is due.
 */
const MAX_HELD_WAIT_MS = 2_000;
/** Maximum concurrent steps of all jobs of this process: those that read whole files, and others. */
const HEAVY_STEPS_AT_A_TIME = 3;
const LIGHT_STEPS_AT_A_TIME = 32;
/** Maximum waiting steps of all jobs of this process. */
const MAX_WAITING_STEPS = 10_000;

/** Runs the fine-tuning jobs that this instance owns, step by step. Each step is durable before the next one. */
export class JobOwner {
  readonly kind = FINE_TUNING_JOB;
  readonly #dependencies: JobOwnerDependencies;
  readonly #runs: OwnedRuns<JobRun>;
  readonly #semaphores = createStepSemaphores();

  constructor(dependencies: JobOwnerDependencies) {
    this.#dependencies = dependencies;
    this.#runs = new OwnedRuns<JobRun>(dependencies, {
      kind: FINE_TUNING_JOB,
      begin: (lease) => new JobRun(lease),
      work: (run) => this.#work(run),
      close: ({ lease }) => dependencies.jobs.forget(lease.id),
    });
  }

  get running(): number {
    return this.#runs.size;
  }

  findWork(limit: number): Promise<readonly string[]> {
    return findDueJobs(this.#dependencies.sql, limit);
  }

  start(lease: Lease): void {
    this.#runs.start(lease);
  }

  /** Reports a change of the job. */
  wake(id: string): void {
    this.#runs.get(id)?.wake();
  }

  stop(): Promise<void> {
    return this.#runs.stop();
  }

  async #work(run: JobRun): Promise<void> {
    const { ownership, clock } = this.#dependencies;
    try {
      while (!run.abandoned.aborted && ownership.isHeld(run.lease)) {
        const waitMs = await this.#next(run);
        if (waitMs === null || waitMs > MAX_HELD_WAIT_MS) return;
        if (waitMs > 0) await run.pause(clock, waitMs);
      }
    } catch (error) {
      if (!(error instanceof Abandoned)) throw error;
    }
  }

  /** Runs the next step. Resolves with the milliseconds until the following step, or null if there is none. */
  async #next(run: JobRun): Promise<number | null> {
    const cell = this.#dependencies.jobs.get(run.lease.id);
    // The loaded state can be old, because a cancellation is written without the owner.
    cell.forget();
    const job = await cell.ask("inspect", undefined);
    if (job === undefined) return null;
    const step = nextStep(job);
    if (step === "rest") return null;
    const isHeavy = step === "check" || step === "upload";
    return this.#semaphores[isHeavy ? "heavy" : "light"].run(job.organizationId, async () => {
      const context = this.#contextOf(run, job);
      try {
        if (run.abandoned.aborted) throw new Abandoned();
        return await (afterDeadline(context) ?? this.#runStep(step, context));
      } catch (error) {
        return await this.#recover(run, context, step, error);
      }
    });
  }

  #runStep(step: Step, context: StepContext): Promise<number | null> {
    switch (step) {
      case "begin": {
        const { trainingFile, validationFile } = context.job;
        const files = validationFile === null ? trainingFile : `${trainingFile}, ${validationFile}`;
        return context.move({ kind: "begin" }, 0, [
          jobMessage(`Validating training file: ${files}`),
        ]);
      }
      case "check":
        return check(context);
      case "upload":
        return upload(context);
      case "order":
        return order(context);
      case "follow":
        return follow(context);
      case "clean-up":
        return cleanUp(context);
      case "rest":
        return Promise.resolve(null);
    }
  }

  async #recover(
    run: JobRun,
    context: StepContext,
    step: Step,
    error: unknown,
  ): Promise<number | null> {
    if (run.abandoned.aborted) throw new Abandoned();
    if (error instanceof JobMovedError) return 0;
    if (error instanceof LeaseLostError || error instanceof Abandoned) throw error;
    if (!isExpected(error)) this.#dependencies.onError(error);
    // The step can have made progress, so the decision uses the current state of the job.
    const cell = this.#dependencies.jobs.get(run.lease.id);
    cell.forget();
    const job = await cell.ask("inspect", undefined);
    if (job === undefined || isFinal(job.status) !== isFinal(context.job.status)) return 0;
    try {
      return await afterFailure(this.#contextOf(run, job), step, error);
    } catch (retryError) {
      if (retryError instanceof JobMovedError) return 0;
      throw retryError;
    }
  }

  #contextOf(run: JobRun, job: JobRecord): StepContext {
    const { providers, files, models, clock, random, ownership, sql, warn } = this.#dependencies;
    const provider = providers.get(job.providerId) ?? absentProvider(job.providerId);
    const cell = this.#dependencies.jobs.get(job.id);
    const { workThread } = this.#dependencies;
    const isOwner = () => !run.abandoned.aborted && ownership.isHeld(run.lease);
    return {
      job,
      provider,
      openFile: (fileId) => openFile(files, job, fileId),
      writeResults: () => writeResults(files, sql, job),
      releaseFiles: () => files.release(job.id),
      checkLongLine: (call) => {
        if (!isOwner()) throw new Abandoned();
        return run.call(clock, CALL_TIMEOUT_MS, (signal) =>
          workThread.call(job.organizationId, call, signal),
        );
      },
      contextTokens: models.all.byId(job.baseModel)?.contextLength ?? Number.POSITIVE_INFINITY,
      nowMs: clock.nowMs(),
      random,
      isOwner,
      warn,
      call: (call, timeoutMs = CALL_TIMEOUT_MS) => {
        if (!isOwner()) throw new Abandoned();
        return run.call(clock, timeoutMs, call);
      },
      move: async (trigger, dueInMs, events = []) => {
        const move = this.#moveOf(run, { trigger, dueInMs, events });
        if ((await cell.ask("move", move)) === undefined) throw new JobMovedError(job.id);
        return dueInMs;
      },
      finish: (ending, events) => this.#finish(run, job, ending, events),
      deletedModel: () => findDeletedTunedModel(sql, job.id),
    };
  }

  async #finish(
    run: JobRun,
    job: JobRecord,
    ending: Ending,
    stepEvents: readonly NewJobEvent[],
  ): Promise<number> {
    const { jobs, money, clock, sql, onError } = this.#dependencies;
    const { figures, ...parts } = partsOfEnding(job, ending, clock.nowMs());
    const events =
      parts.tunedModel === undefined ? stepEvents : [...stepEvents, ...successOf(parts.trigger)];
    const cell = jobs.get(job.id);
    const decided = await cell.ask("end", this.#moveOf(run, { ...parts, dueInMs: 0, events }));
    if (decided === undefined) throw new JobMovedError(job.id);
    await endJob({ money, sql, onError }, job, figures, decided.effect);
    return 0;
  }

  #moveOf(run: JobRun, move: Omit<JobMove, "guard">): JobMove {
    const { instance } = this.#dependencies;
    return { ...move, guard: (sql) => guardLease(sql, run.lease, instance) };
  }
}

/** Returns the semaphores that bound steps that read whole files, and other steps. */
export function createStepSemaphores() {
  return {
    heavy: stepSemaphore(HEAVY_STEPS_AT_A_TIME, allButOne(HEAVY_STEPS_AT_A_TIME)),
    light: stepSemaphore(LIGHT_STEPS_AT_A_TIME),
  };
}

function stepSemaphore(most: number, mostOfOne?: number): FairSemaphore {
  return new FairSemaphore({
    most,
    ...(mostOfOne !== undefined && { mostOfOne }),
    maxWaiting: MAX_WAITING_STEPS,
    refusal: () => overloaded("Too many steps of fine-tuning jobs are waiting."),
  });
}

function successOf(trigger: Trigger): NewJobEvent[] {
  if (trigger.kind !== "trained") return [];
  return [
    jobMessage(`New fine-tuned model created: ${trigger.fineTunedModel}`),
    jobMessage("The job has successfully completed"),
  ];
}

/** Returns true for a failure of a provider, or of a work thread that is overloaded or stopping. */
function isExpected(error: unknown): boolean {
  if (error instanceof ProviderFailure) return true;
  return error instanceof GatewayError && error.code === "overloaded";
}

/** Thrown if this instance must no longer work on the job: the lease is lost, or the process stops. */
class Abandoned extends Error {}

/** A job that this instance owns. */
class JobRun extends OwnedRun {
  #wake: (() => void) | undefined;
  /** True if the job was woken before it paused. */
  #isAwake = false;

  override abandon(): void {
    super.abandon();
    this.wake();
  }

  wake(): void {
    this.#isAwake = true;
    this.#wake?.();
  }

  async pause(clock: Clock, ms: number): Promise<void> {
    if (!this.#isAwake) {
      await new Promise<void>((resolve) => {
        const cancel = clock.after(ms, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
    }
    this.#wake = undefined;
    this.#isAwake = false;
  }

  async call<Result>(
    clock: Clock,
    timeoutMs: number,
    call: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const controller = new AbortController();
    const abort = () => controller.abort();
    const stopTimer = clock.after(timeoutMs, abort);
    this.abandoned.addEventListener("abort", abort, { once: true });
    try {
      return await call(controller.signal);
    } finally {
      stopTimer();
      this.abandoned.removeEventListener("abort", abort);
    }
  }
}

/** Returns a provider that fails every call. Used if the provider is no longer configured. */
function absentProvider(providerId: string): FineTuningProvider {
  const unavailable = async (): Promise<never> => {
    throw new ProviderFailure("unavailable", `no provider ${providerId} is configured`);
  };
  return {
    uploadFile: unavailable,
    findFile: unavailable,
    deleteFile: unavailable,
    createJob: unavailable,
    findJobs: unavailable,
    readJob: unavailable,
    readEvents: unavailable,
    cancelJob: unavailable,
    deleteModel: unavailable,
    countTokens: unavailable,
  };
}

/** Returns the bytes of a file that the job has in use, deleted or not. Returns undefined if it has none in use. */
async function openFile(
  files: JobFiles,
  { id, organizationId }: JobRecord,
  fileId: string,
): Promise<ReadableStream<Uint8Array> | undefined> {
  try {
    return await files.read({ fileId, organizationId, holder: id });
  } catch (error) {
    if (error instanceof GatewayError && error.code === "file_not_found") return undefined;
    throw error;
  }
}
