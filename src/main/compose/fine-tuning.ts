import { fineTuningJobActor } from "../../../actors/fine-tuning-job/actor.ts";
import { turnContextOf } from "../../../actors/runtime/definition.ts";
import { type ActorEnvironment, ActorRegistry } from "../../../actors/runtime/registry.ts";
import type { Database } from "../../../db/client.ts";
import type { TunedModels } from "../../inference/call/routing/tuned-models.ts";
import { EventFeeds } from "../../jobs/fine-tuning/event-feed.ts";
import { FineTuning } from "../../jobs/fine-tuning/fine-tuning.ts";
import { JobOwner } from "../../jobs/fine-tuning/job-owner.ts";
import type { Clock } from "../../lib/clock.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import type { CatalogueViews } from "../../providers/catalogue/catalogue-views.ts";
import type { Provider } from "../../providers/interface.ts";
import { trainersOf } from "../../providers/registry.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { FileParts } from "./files.ts";
import type { Part } from "./lifecycle.ts";
import type { MoneyParts } from "./money.ts";

/** Composes fine-tuning jobs: the service for callers, and this instance's work on jobs. */
export function composeFineTuning(
  options: Base &
    MoneyParts & {
      readonly node: ClusterNode;
      readonly files: FileParts;
      readonly models: CatalogueViews;
      readonly tunedModels: TunedModels;
      readonly providers: ReadonlyMap<string, Provider>;
      readonly workThread: FairWorkThread;
    },
): Part & { readonly fineTuning: FineTuning } {
  const { background, changes, clock, config, telemetry, tunedModels } = options;
  const { ownership, unowned } = options.node;
  const feeds = new EventFeeds({ ...options, sql: background, keepaliveMs: config.keepaliveMs });
  const jobs = new ActorRegistry(fineTuningJobActor, jobEnvironment(background, clock));
  const shared = {
    ...options,
    files: options.files.jobFiles,
    providers: trainersOf(options.providers),
    random: Math.random,
  };
  const warn = (message: string): void => telemetry.log.warn(message);
  const owner = new JobOwner({ ...shared, sql: background, ownership, jobs, warn });
  unowned.register(owner);
  changes.invalidate("tuned-model", tunedModels);
  changes.on("fine-tuning-job", (jobId) => feeds.notice(jobId));
  changes.onGap(() => feeds.noticeAll());
  changes.on("fine-tuning-work", (jobId) => {
    owner.wake(jobId);
    void unowned.sweep(owner.kind);
  });
  telemetry.gauge(
    "gateway_fine_tuning_jobs",
    "Fine-tuning jobs that this instance works on.",
    () => owner.running,
  );
  return {
    fineTuning: new FineTuning({ ...shared, feeds }),
    passivateIdle: () => jobs.passivateIdle(),
    async stop() {
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
