import type { Database } from "../../db/client.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import { loadJob } from "../../db/queries/fine-tuning-jobs.ts";
import { isFinal, type JobRecord } from "../lib/fine-tuning-job.ts";
import type { MoneyPort, SettlementFigures } from "../money/interface.ts";

export interface EndJobDependencies {
  readonly sql: Database;
  readonly money: MoneyPort;
  readonly onError: (error: unknown) => void;
}

/**
 * Ends a job and its hold in one transaction: charged where there are figures, given back where there
 * are none. Throws what `effect` throws; then nothing has ended. Returns false if another caller has
 * ended it before.
 */
export async function endJob(
  { sql, money, onError }: EndJobDependencies,
  job: JobRecord,
  figures: SettlementFigures | undefined,
  effect: StatementEffect,
): Promise<boolean> {
  let isCarriedOut = false;
  const also: StatementEffect = {
    ...effect,
    async run(transaction) {
      await effect.run(transaction);
      isCarriedOut = true;
    },
  };
  if (figures === undefined) await money.releaseLong(job.requestId, also);
  else await money.settleLong(job.requestId, figures, also);
  if (isCarriedOut) return true;
  const ended = await loadJob(job.id).run(sql);
  if (ended === undefined || isFinal(ended.status)) return false;
  // The hold had ended before: a job must not wait for it without end.
  onError(new Error(`the hold of fine-tuning job ${job.id} had ended before the job`));
  await sql.begin((transaction) => effect.run(transaction));
  return true;
}
