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
  /** Undefined if the job does not exist. */
  readonly job: JobRecord | undefined;
}

/** A trigger for a job, and the writes of the owner that go with it. */
export interface JobMove extends Pick<JobWrite, "dueInMs" | "events" | "outbox" | "tunedModel"> {
  readonly trigger: Trigger;
  /** The first statement of the transaction, which checks the owner's lease. */
  readonly guard: (sql: DatabaseTransaction) => Promise<void>;
}

/** The end of a job. The transaction that ends the job's hold also writes `effect`. */
export interface JobEnding {
  readonly after: JobRecord;
  readonly effect: StatementEffect;
}

/**
 * One fine-tuning job. state.ts describes its states. Every write names the version that it was decided on and
 * the owner's lease. It is therefore rejected if a cancellation on another instance, or another owner, came
 * first.
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

    /** Replies the job after the move, or undefined if the move is not possible now. */
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

    /**
     * Decides the move that ends the job, like `move`, but writes nothing: the transaction that ends the hold
     * does.
     */
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
