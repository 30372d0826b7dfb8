import type { NewJobEvent } from "../../lib/fine-tuning-job.ts";
import type { ProviderJob, ProviderJobEvent } from "../../providers/fine-tuning.ts";
import { pauseOfFollowing } from "../pauses.ts";
import { fail, type StepContext, told } from "../step.ts";

/** Looks how far the provider has come. */
export async function follow(context: StepContext): Promise<number | null> {
  const { job, provider, call, nowMs } = context;
  const providerJob = job.providerJob!;
  const seen = await call((signal) => provider.readJob(providerJob, signal));
  const events = await news(context, seen);
  switch (seen.status) {
    case "succeeded": {
      const { tunedModel, trainedTokens } = seen;
      const ending = { kind: "trained", providerModel: tunedModel!, trainedTokens } as const;
      return context.finish(ending, events);
    }
    case "failed": {
      const { code, message } = seen.failure!;
      return fail(context, code, inOurNames(context, seen, message), null, events);
    }
    case "cancelled":
      return context.finish({ kind: "cancel" }, [...events, told("The job was cancelled")]);
    default: {
      const estimatedFinishMs =
        seen.estimatedFinish === undefined ? null : seen.estimatedFinish * 1000;
      const pauseMs = pauseOfFollowing(nowMs - job.runningSinceMs!);
      return context.move({ kind: "observed", estimatedFinishMs }, pauseMs, events);
    }
  }
}

/** What the provider told of the job. Without it the job goes on all the same. */
async function news(context: StepContext, seen: ProviderJob): Promise<NewJobEvent[]> {
  let events: ProviderJobEvent[];
  try {
    events = await context.call((signal) => context.provider.readEvents(seen.id, signal));
  } catch {
    return [];
  }
  return events.map((event) => ({
    level: event.level,
    message: inOurNames(context, seen, event.message),
    type: event.type,
    data: event.data,
    providerEvent: event.id,
  }));
}

/** The provider knows job, files and model by names that are nobody's business here. */
function inOurNames({ job }: StepContext, seen: ProviderJob, text: string): string {
  const names: [string | null | undefined, string][] = [
    [seen.tunedModel, "the fine-tuned model"],
    [seen.id, job.id],
    [job.providerFile, job.trainingFile],
    [job.providerValidationFile, job.validationFile ?? ""],
  ];
  let told = text;
  for (const [theirs, ours] of names) if (theirs) told = told.replaceAll(theirs, ours);
  return told;
}
