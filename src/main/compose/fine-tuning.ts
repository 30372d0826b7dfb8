import { fineTuningJobActor } from "../../../actors/fine-tuning-job/actor.ts";
import { turnContextOf } from "../../../actors/runtime/definition.ts";
import type { Ownership, UnownedWork } from "../../../actors/runtime/ownership.ts";
import { type ActorEnvironment, ActorRegistry } from "../../../actors/runtime/registry.ts";
import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import type { MoneyPort } from "../../billing/ledger/interface.ts";
import type { CallAdmission } from "../../inference/call/admission.ts";
import type { TunedModels } from "../../inference/call/routing/tuned-models.ts";
import type { JobFiles } from "../../jobs/files/job-files.ts";
import { EventFeeds } from "../../jobs/fine-tuning/event-feed.ts";
import { FineTuning } from "../../jobs/fine-tuning/fine-tuning.ts";
import { JobOwner } from "../../jobs/fine-tuning/job-owner.ts";
import type { Clock } from "../../lib/clock.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import type { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { FineTuningProvider } from "../../providers/fine-tuning.ts";

export interface FineTuningOptions {
  readonly sql: Database;
  /** The same pool as `sql`, for statements that may take long. */
  readonly background: Database;
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  readonly ownership: Ownership;
  readonly unowned: UnownedWork;
  readonly changes: ChangeFeed;
  readonly money: MoneyPort;
  readonly models: ModelIndex;
  readonly tunedModels: TunedModels;
  readonly providers: ReadonlyMap<string, FineTuningProvider>;
  readonly files: JobFiles;
  readonly workThread: FairWorkThread;
  readonly admission: CallAdmission;
  readonly keepaliveMs: number;
  readonly telemetry: Telemetry;
  onError(error: unknown): void;
}

export interface FineTuningParts {
  readonly fineTuning: FineTuning;
  /** Number of jobs that this instance works on. */
  readonly runningJobs: number;
  /** Drops idle actors. Call it every few seconds. */
  passivateIdle(): void;
  /** Stops the work on all jobs. The next owner continues them. */
  close(): Promise<void>;
}

/** Composes fine-tuning jobs: the service for callers, and this instance's work on jobs. */
export function composeFineTuning(options: FineTuningOptions): FineTuningParts {
  const { background, clock, unowned, changes, tunedModels } = options;
  const feeds = new EventFeeds({ ...options, sql: background });
  const jobs = new ActorRegistry(fineTuningJobActor, jobEnvironment(background, clock));
  const owner = new JobOwner({
    ...options,
    sql: background,
    jobs,
    random: Math.random,
    warn: (message) => options.telemetry.log.warn(message),
  });
  const fineTuning = new FineTuning({ ...options, feeds, random: Math.random });
  unowned.register({
    kind: owner.kind,
    findWork: (limit) => owner.findWork(limit),
    start: (lease) => owner.start(lease),
  });
  changes.invalidate("tuned-model", tunedModels);
  changes.on("fine-tuning-job", (jobId) => feeds.notice(jobId));
  changes.onGap(() => feeds.noticeAll());
  changes.on("fine-tuning-work", (jobId) => {
    owner.wake(jobId);
    void unowned.sweep(owner.kind);
  });
  return {
    fineTuning,
    get runningJobs() {
      return owner.running;
    },
    passivateIdle: () => jobs.passivateIdle(),
    async close() {
      feeds.stop();
      await owner.stop();
    },
  };
}

/** Commits the effects of jobs outside the ledger's queue, because jobs are written rarely and one at a time. */
function jobEnvironment(sql: Database, clock: Clock): ActorEnvironment {
  return {
    clock,
    context: turnContextOf(clock, Math.random),
    read: (query) => query.run(sql),
    async commit(effects) {
      await sql.begin(async (transaction) => {
        for (const effect of effects) {
          if (effect.kind !== "statement") throw new Error("a job cannot move money");
          await effect.run(transaction);
        }
      });
    },
  };
}
