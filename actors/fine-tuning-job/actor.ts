import type { DatabaseTransaction } from "../../db/client.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import {
  FINE_TUNING_JOB,
  type JobWrite,
  loadJob,
  writeJobEffect,
} from "../../db/queries/fine-tuning-jobs.ts";
import { fineTuningJobFailed } from "../../src/lib/events/fine-tuning-job-failed.ts";
import { fineTuningJobSucceeded } from "../../src/lib/events/fine-tuning-job-succeeded.ts";
import type { JobRecord } from "../../src/lib/fine-tuning-job.ts";
import { defineActor, type Turn, type TurnContext } from "../runtime/definition.ts";
import { afterTrigger, type Trigger } from "./state.ts";

export interface JobState {
  /** Undefined where there is no such job. */
  readonly job: JobRecord | undefined;
}

/** What brings a job further, and what its owner does about it. */
export interface JobMove extends Pick<JobWrite, "dueInMs" | "events" | "outbox" | "tunedModel"> {
  readonly trigger: Trigger;
  /** The first statement of the transaction: the lease under which this is written. */
  readonly guard: (sql: DatabaseTransaction) => Promise<void>;
}

/** A move that also ends the job's hold: the transaction that ends it writes `effect` too. */
export interface JobEnding {
  readonly after: JobRecord;
  readonly effect: StatementEffect;
}

/**
 * One fine-tuning job, as its owner decides about it. state.ts describes the states. Every write
 * names the version it was decided on and stands under the owner's lease, so that whatever has changed
 * meanwhile (a cancel on another instance, another owner) refuses it.
 */
export const fineTuningJobActor = defineActor({
  kind: FINE_TUNING_JOB,
  permissions: {
    reads: ["fine_tuning_jobs"],
    writes: [
      "file_uses",
      "fine_tuning_jobs",
      "fine_tuning_events",
      "tuned_models",
      "files",
      "outbox",
      "changes",
    ],
    events: [fineTuningJobSucceeded.type, fineTuningJobFailed.type],
  },

  load: async (id, context): Promise<JobState> => ({ job: await context.read(loadJob(id)) }),
  isAbsent: ({ job }) => job === undefined,

  verbs: {
    inspect: (state: JobState, _: undefined): Turn<JobState, JobRecord | undefined> => ({
      state,
      reply: state.job,
    }),

    /** The job after the move; undefined where it cannot come now. */
    move(
      state: JobState,
      move: JobMove,
      context: TurnContext,
    ): Turn<JobState, JobRecord | undefined> {
      const write = writeOf(state, move, context);
      if (write === undefined) return { state, reply: undefined };
      return {
        state: { job: write.after },
        reply: write.after,
        effects: [writeJobEffect(write, move.guard)],
      };
    },

    /** As `move`, for the end of the job; nothing is written here, because money ends with it. */
    end(
      state: JobState,
      move: JobMove,
      context: TurnContext,
    ): Turn<JobState, JobEnding | undefined> {
      const write = writeOf(state, move, context);
      if (write === undefined) return { state, reply: undefined };
      return { state, reply: { after: write.after, effect: writeJobEffect(write, move.guard) } };
    },
  },
});

function writeOf(
  { job }: JobState,
  { trigger, dueInMs, events, outbox, tunedModel }: JobMove,
  { nowMs }: TurnContext,
): JobWrite | undefined {
  const after = job && afterTrigger(job, trigger, nowMs);
  if (job === undefined || after === undefined) return undefined;
  return { before: job, after, dueInMs, events, outbox, tunedModel };
}
