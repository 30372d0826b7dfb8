import { afterTrigger } from "../../../actors/fine-tuning-job/state.ts";
import type { Database } from "../../../db/client.ts";
import { findFile } from "../../../db/queries/files.ts";
import {
  eventsBefore,
  findEventSequence,
  type JobEvent,
} from "../../../db/queries/fine-tuning-events.ts";
import {
  countRunningJobs,
  FileGoneError,
  findJob,
  insertJobEffect,
  JobMovedError,
  type JobWrite,
  listJobs,
  TooManyJobsError,
  writeJobEffect,
} from "../../../db/queries/fine-tuning-jobs.ts";
import type { MoneyPort } from "../../billing/ledger/interface.ts";
import type { Caller } from "../../http/caller.ts";
import type { CallAdmission, RateHeaders, RateSubject } from "../../inference/call/admission.ts";
import { assertModelsAllowed, resolveModels } from "../../inference/call/routing/plan-route.ts";
import type { TunedModels } from "../../inference/call/routing/tuned-models.ts";
import type { CatalogueModel, FineTuningTerms, ModelEndpoint } from "../../lib/catalogue-model.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import type { Hyperparameters, JobOrder, JobRecord } from "../../lib/fine-tuning-job.ts";
import { newId } from "../../lib/ids.ts";
import { holdNanoUsd } from "../../lib/money.ts";
import type { CatalogueViews } from "../../providers/catalogue/catalogue-views.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { Trainers } from "../../providers/registry.ts";
import type { EventFeeds, FeedItem, Follower } from "./event-feed.ts";
import { endJob } from "./job-ending.ts";
import { jobMessage } from "./steps.ts";

interface FineTuningDependencies {
  readonly sql: Database;
  readonly money: MoneyPort;
  readonly models: CatalogueViews;
  readonly tunedModels: TunedModels;
  readonly providers: Trainers;
  readonly feeds: EventFeeds;
  readonly admission: CallAdmission;
  readonly clock: Clock;
  random(): number;
  onError(error: unknown): void;
}

/** A requested job. */
export interface JobRequest {
  readonly model: string;
  readonly trainingFile: string;
  readonly validationFile: string | null;
  readonly suffix: string | null;
  readonly seed: number | null;
  readonly hyperparameters: Hyperparameters;
  readonly metadata: Readonly<Record<string, string>> | null;
}

/** Maximum jobs of one organization that have not ended. */
const MAX_RUNNING_JOBS = 25;
/** Maximum tuned models of one organization. */
const MAX_TUNED_MODELS = 1_000;
const FINE_TUNE = "fine-tune";
const MAX_SEED = 2_147_483_647;
/** Maximum attempts of a cancellation. An attempt fails if the job changes in the meantime. */
const MAX_DECISIONS = 16;

/** The fine-tuning jobs of organizations (spec 4.10), for requests. job-owner.ts runs them. */
export class FineTuning {
  readonly #dependencies: FineTuningDependencies;

  constructor(dependencies: FineTuningDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Creates a job, and holds the maximum cost of the training. Throws these statuses:
   *
   * - 404 if the model does not exist, and 400 if it cannot be trained or a file cannot be used,
   * - 403 if the key is not allowed to use the model, or the organization has too many jobs or tuned models,
   * - 429 if the key's rate limit is reached,
   * - 402 if the credit or a budget does not cover the hold, or the plan is BYOK and the provider is not the sandbox.
   */
  async create(
    arrival: RateSubject,
    request: JobRequest,
  ): Promise<{ job: JobRecord; headers: RateHeaders }> {
    const { providers, admission } = this.#dependencies;
    const { caller, requestId } = arrival;
    const { organizationId } = caller.key;
    const models = this.#dependencies.models.of(caller.key.organizationId);
    const tunable = tunableModel(models, providers, request.model);
    assertModelsAllowed(caller.key, [tunable.model], "model", models);
    const bytes = await this.#trainingBytes(organizationId, request);
    await this.#assertRoom(organizationId);
    const headers = await admission.takeRate(arrival);
    const endpoint = { providerId: tunable.endpoint.provider };
    const fee = (await admission.fees(caller, [endpoint])).of(endpoint);
    const order = this.#orderOf(caller, requestId, request, tunable, bytes, fee);
    const created = jobMessage(`Created fine-tuning job: ${order.id}`);
    const subjects = await admission.subjectsOf(caller, { metadata: request.metadata });
    const { holdNano } = order;
    const hold = { id: requestId, organizationId, keyId: caller.key.id, subjects, holdNano };
    let job: JobRecord | undefined;
    const insert = insertJobEffect(order, [created], MAX_RUNNING_JOBS, (inserted) => {
      job = inserted;
    });
    await admission.holdLong(hold, insert).catch((error) => throwAsRefusal(error, request));
    return { job: job!, headers };
  }

  /** Returns a job. Throws 404 job_not_found if the job does not exist. */
  async find(organizationId: string, id: string): Promise<JobRecord> {
    const job = await findJob(this.#dependencies.sql, organizationId, id);
    if (job === undefined) throw notFound();
    return job;
  }

  /** Lists jobs, newest first. Throws 400 if the job `after` does not exist. */
  async list(
    organizationId: string,
    page: { readonly after: string | undefined; readonly limit: number },
  ): Promise<{ jobs: JobRecord[]; hasMore: boolean }> {
    const listed = await listJobs(this.#dependencies.sql, { organizationId, ...page });
    if (listed === undefined) throw unknownCursor();
    return listed;
  }

  /**
   * Lists events, newest first. Throws 404 if the job does not exist, and 400 if the event `after` does not
   * exist.
   */
  async events(
    organizationId: string,
    id: string,
    page: { readonly after: string | undefined; readonly limit: number },
  ): Promise<{ events: JobEvent[]; hasMore: boolean }> {
    const { sql } = this.#dependencies;
    const job = await this.find(organizationId, id);
    const before =
      page.after === undefined
        ? job.eventCount + 1
        : await findEventSequence(sql, job.id, page.after);
    if (before === undefined) throw unknownCursor();
    const events = await eventsBefore(sql, job.id, before, page.limit + 1);
    return { events: events.slice(0, page.limit), hasMore: events.length > page.limit };
  }

  /**
   * Returns the events after `lastEventId`, oldest first, until the job has ended. Returns all events if the
   * job has no such event. Throws 404 if the job does not exist, and 503 if too many event streams are open.
   */
  async follow(
    organizationId: string,
    id: string,
    lastEventId: string | null,
    follower: Follower,
  ): Promise<AsyncIterable<FeedItem>> {
    const { sql, feeds } = this.#dependencies;
    const job = await this.find(organizationId, id);
    const lastSequence =
      lastEventId === null ? undefined : await findEventSequence(sql, job.id, lastEventId);
    return feeds.follow(organizationId, job.id, lastSequence ?? 0, follower);
  }

  /**
   * Cancels a job. Throws 404 if the job does not exist, 409 job_not_cancellable if it has ended, and 503 if it
   * changes during every attempt.
   *
   * @param act recorded with the change
   */
  async cancel(organizationId: string, id: string, act?: JobWrite["act"]): Promise<JobRecord> {
    for (let decision = 0; decision < MAX_DECISIONS; decision++) {
      const before = await this.find(organizationId, id);
      const after = afterTrigger(before, { kind: "cancel" }, this.#dependencies.clock.nowMs());
      if (after === undefined) throw notCancellable(before);
      const effect = writeJobEffect({
        before,
        after,
        dueInMs: 0,
        events: [jobMessage("The job was cancelled")],
        wakesOwner: true,
        act,
      });
      try {
        const isOurs = await endJob(this.#dependencies, before, undefined, effect);
        if (isOurs) return await this.find(organizationId, id);
      } catch (error) {
        if (!(error instanceof JobMovedError)) throw error;
      }
    }
    throw overloaded("The job is busy. Try again shortly.");
  }

  /**
   * Returns the bytes of the training file, which bound its tokens. Throws 400 if the training or validation
   * file does not exist, is not processed, or has another purpose.
   */
  async #trainingBytes(organizationId: string, request: JobRequest): Promise<number> {
    const { sql } = this.#dependencies;
    const bytesOf = async (id: string, param: string): Promise<number> => {
      const file = await findFile(sql, organizationId, id);
      const shown = JSON.stringify(id.slice(0, 100));
      if (file === undefined) {
        throw new GatewayError("invalid_body", `There is no file ${shown}.`, { param });
      }
      if (file.purpose !== FINE_TUNE || file.status !== "processed") {
        const what = `The file ${shown} is not a processed file of the purpose ${FINE_TUNE}.`;
        throw new GatewayError("invalid_body", what, { param });
      }
      return file.bytes;
    };
    const bytes = await bytesOf(request.trainingFile, "training_file");
    if (request.validationFile !== null) await bytesOf(request.validationFile, "validation_file");
    return bytes;
  }

  /** Throws 403 quota_exceeded if the organization has too many running jobs or tuned models. */
  async #assertRoom(organizationId: string): Promise<void> {
    const { sql, tunedModels } = this.#dependencies;
    const running = await countRunningJobs(sql, organizationId);
    if (running >= MAX_RUNNING_JOBS) throw tooManyJobs();
    const models = await tunedModels.of(organizationId);
    if (models.length + running >= MAX_TUNED_MODELS) {
      throw quotaExceeded(`${MAX_TUNED_MODELS} fine-tuned models`);
    }
  }

  #orderOf(
    caller: Caller,
    requestId: string,
    request: JobRequest,
    { model, terms, endpoint }: TunableModel,
    bytes: number,
    fee: bigint,
  ): JobOrder {
    // Every token has at least one byte, and the JSON around a message is longer than the tokens that a
    // template adds.
    const tokens = BigInt(bytes) * BigInt(request.hyperparameters.n_epochs);
    return {
      ...request,
      id: newId("ftjob"),
      requestId,
      organizationId: caller.key.organizationId,
      keyId: caller.key.id,
      baseModel: model.id,
      providerId: endpoint.provider,
      providerBaseModel: endpoint.model,
      seed: request.seed ?? Math.floor(this.#dependencies.random() * MAX_SEED),
      tokenFemto: terms.trainingTokenFemto,
      feeBasisPoints: Number(fee),
      holdNano: holdNanoUsd(tokens * terms.trainingTokenFemto, fee),
    };
  }
}

/** Throws the response to a rejection that only the transaction of the order can detect. */
function throwAsRefusal(error: unknown, request: JobRequest): never {
  if (error instanceof TooManyJobsError) throw tooManyJobs();
  if (!(error instanceof FileGoneError)) throw error;
  const param = error.fileId === request.trainingFile ? "training_file" : "validation_file";
  const shown = JSON.stringify(error.fileId);
  throw new GatewayError("invalid_body", `There is no file ${shown}.`, { param });
}

function notFound(): GatewayError {
  return new GatewayError("job_not_found", "There is no such fine-tuning job.");
}

function notCancellable(job: JobRecord): GatewayError {
  return new GatewayError("job_not_cancellable", `The fine-tuning job has ended: ${job.status}.`);
}

function tooManyJobs(): GatewayError {
  return quotaExceeded(`${MAX_RUNNING_JOBS} fine-tuning jobs that run at a time`);
}

function quotaExceeded(what: string): GatewayError {
  return new GatewayError("quota_exceeded", `An organization can have at most ${what}.`);
}

function unknownCursor(): GatewayError {
  return new GatewayError("invalid_query", 'Query parameter "after" names no entry of this list.', {
    param: "after",
  });
}

interface TunableModel {
  readonly model: CatalogueModel;
  readonly terms: FineTuningTerms;
  readonly endpoint: ModelEndpoint;
}

/**
 * Returns the base model of a name and the endpoint that trains it: the first endpoint whose provider can train.
 * Throws 404 model_not_found if no model has the name, and 400 unsupported_model if no provider trains it or
 * the price is unknown.
 */
function tunableModel(models: ModelIndex, providers: Trainers, name: string): TunableModel {
  const named = { models: [name], modelsField: "model" } as const;
  const model = resolveModels(models, named, ["chat", "code"])[0]!;
  const endpoint = model.endpoints.find(({ provider }) => providers.has(provider));
  if (model.fineTuning === undefined || endpoint === undefined) {
    throw new GatewayError(
      "unsupported_model",
      `The model ${model.id} cannot be fine-tuned. ${namesOf(models, providers)}`,
      { param: "model" },
    );
  }
  return { model, terms: model.fineTuning, endpoint };
}

const MAX_NAMED = 10;

function namesOf(models: ModelIndex, providers: Trainers): string {
  const tunable = models
    .all()
    .filter(({ isActive, fineTuning }) => isActive && fineTuning !== undefined)
    .filter(({ endpoints }) => endpoints.some(({ provider }) => providers.has(provider)))
    .map(({ id }) => id);
  return tunable.length === 0
    ? "No model can be fine-tuned."
    : `These models can: ${tunable.slice(0, MAX_NAMED).join(", ")}.`;
}
