import { OwnedRun, OwnedRuns } from "../../../actors/runtime/owned-runs.ts";
import { type Lease, LeaseLostError, type Ownership } from "../../../actors/runtime/ownership.ts";
import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { guardLease } from "../../../db/queries/actor-leases.ts";
import { readContents, removeLines } from "../../../db/queries/batch-lines.ts";
import {
  BATCH,
  beginLines,
  endBatch,
  failBatch,
  finalizeBatch,
  findDueBatches,
  postponeBatch,
  readBatch,
  restBatch,
  restBatchFor,
} from "../../../db/queries/batches.ts";
import { insertOutboxEvent } from "../../../db/queries/outbox.ts";
import type { MoneyPort } from "../../billing/ledger/interface.ts";
import { type BatchEnd, type BatchRecord, isEnded } from "../../lib/batch.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import { batchCompleted } from "../../lib/events/batch-completed.ts";
import { batchFailed } from "../../lib/events/batch-failed.ts";
import { allButOne, FairSemaphore } from "../../lib/fair-share.ts";
import { newId } from "../../lib/ids.ts";
import type { Keyring } from "../../lib/keyring.ts";
import type { Provider } from "../../providers/interface.ts";
import type { JobFiles } from "../files/job-files.ts";
import { checkInput } from "./input-lines.ts";
import { isOverload, type LineCalls } from "./line-call.ts";
import { LINES_AT_A_TIME, LineRun, waitUnless } from "./line-run.ts";
import { ProviderBatchSubmitter } from "./provider-batch-submitter.ts";

interface BatchOwnerDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly files: JobFiles;
  readonly calls: LineCalls;
  readonly money: MoneyPort;
  /** The operator's providers. */
  readonly providers: ReadonlyMap<string, Provider>;
  isBusy(): boolean;
  warn(message: string): void;
  /** Called when a batch is done, so that there is room for another one. */
  onRoom(): void;
  onError(error: unknown): void;
}

/** Maximum batches that this process works on at a time, in total and for one organization. */
const MAX_BATCHES_AT_A_TIME = 16;
const MAX_BATCHES_OF_ONE = 2;
const MAX_CALLS_AT_A_TIME = 32;
const MAX_CHECKED_AT_A_TIME = 3;
/** Milliseconds between two checks of provider batches while other lines are called. */
const FOLLOW_MS = 1_000;
const DELAYS = { firstMs: 1_000, longestMs: 600_000 };

/**
 * The states of a batch, and the work of its owner in each:
 *
 * - `validating`: the owner reads the input to its end. The batch is then `in_progress`, or `failed` if a
 *   line is invalid.
 * - `in_progress`: the owner submits lines to providers that run batches, and calls the others, a few at a
 *   time, until each line has its result. A line that is not called within the completion window has the
 *   expiry as its result. The batch is then `finalizing`. While only provider batches remain, the batch has
 *   no owner, except for a check from time to time.
 * - `finalizing`: the owner writes the files. The batch is then `completed` or `expired`.
 * - `cancelling`: a request has cancelled the batch while `validating` or `in_progress`. Running lines end,
 *   uncalled lines have the cancellation as their result, and the owner writes the files. The batch is then
 *   `cancelled`.
 * - Ended: the owner releases the input and removes the stored lines. The batch then needs no owner.
 *
 * The lease guards each of the owner's transactions. The next owner repeats all work that an owner has not
 * written.
 */

/** Returns the semaphore that bounds the lines being called. */
export function createLineSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: MAX_CALLS_AT_A_TIME,
    mostOfOne: LINES_AT_A_TIME * MAX_BATCHES_OF_ONE,
    maxWaiting: 2 * LINES_AT_A_TIME * MAX_BATCHES_AT_A_TIME,
    refusal: () => overloaded("Too many lines of batches are waiting."),
  });
}

/** Returns the semaphore that bounds the batches whose input is being checked. */
export function createCheckSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: MAX_CHECKED_AT_A_TIME,
    mostOfOne: allButOne(MAX_CHECKED_AT_A_TIME),
    maxWaiting: 4 * MAX_BATCHES_AT_A_TIME,
    refusal: () => overloaded("Too many batches are waiting to be checked."),
  });
}

/** Runs the batches that this instance owns. */
export class BatchOwner {
  readonly kind = BATCH;
  readonly #dependencies: BatchOwnerDependencies;
  readonly #runs: OwnedRuns<Run>;
  readonly #slots = createLineSemaphore();
  readonly #checking = createCheckSemaphore();

  constructor(dependencies: BatchOwnerDependencies) {
    this.#dependencies = dependencies;
    this.#runs = new OwnedRuns<Run>(dependencies, {
      kind: BATCH,
      begin: (lease) => new Run(lease),
      work: (run) => this.#work(run),
      close: (run) => run.close(),
      onRoom: () => dependencies.onRoom(),
    });
  }

  /** Returns ids of due batches, at most as many as this instance has room for. */
  async findWork(limit: number): Promise<readonly string[]> {
    const room = Math.min(limit, MAX_BATCHES_AT_A_TIME - this.#runs.size);
    if (room <= 0) return [];
    const without = this.#runs.organizationsWith(MAX_BATCHES_OF_ONE);
    return findDueBatches(this.#dependencies.sql, room, { mostOfOne: MAX_BATCHES_OF_ONE, without });
  }

  start(lease: Lease): void {
    this.#runs.start(lease);
  }

  /** Applies a change to a batch if this instance owns it. */
  async applyChange(id: string): Promise<void> {
    const run = this.#runs.get(id);
    if (run === undefined) return;
    const batch = await readBatch(this.#dependencies.sql, id);
    if (batch !== undefined) run.apply(batch, this.#dependencies.clock);
  }

  stop(): Promise<void> {
    return this.#runs.stop();
  }

  /** Runs a batch step by step. Each step leaves it in a later state. */
  async #work(run: Run): Promise<void> {
    const { sql, clock } = this.#dependencies;
    let batch = await readBatch(sql, run.lease.id);
    try {
      for (; batch !== undefined; batch = await readBatch(sql, run.lease.id)) {
        run.apply(batch, clock);
        if (!(await this.#step(run, batch))) break;
      }
    } catch (error) {
      if (error instanceof LeaseLostError || run.abandoned.aborted) throw error;
      await this.#postpone(run, error);
    }
  }

  /** Runs one step. Returns false if the batch needs no further step now. */
  async #step(run: Run, batch: BatchRecord): Promise<boolean> {
    if (isEnded(batch.status)) {
      await this.#clear(run, batch);
      return false;
    }
    if (batch.endsAs !== null) await this.#writeFiles(run, batch);
    else if (batch.inProgressAtMs !== null) return this.#answerLines(run, batch);
    else {
      const check = () => this.#check(run, batch);
      await this.#checking.run(batch.organizationId, check, run.abandoned);
    }
    return true;
  }

  async #check(run: Run, batch: BatchRecord): Promise<void> {
    const input = await this.#readInput(batch);
    const checked = await checkInput(input, batch.endpoint);
    await this.#runs.guarded(run, async (sql) => {
      if ("faults" in checked) await emitEnd(sql, await failBatch(sql, batch.id, checked.faults));
      else await beginLines(sql, batch.id, checked);
    });
  }

  /** Answers the lines. Returns false if the batch waits for provider batches. */
  async #answerLines(run: Run, batch: BatchRecord): Promise<boolean> {
    const { live, submitter } = await this.#linesOf(run, batch);
    const { ended } = run;
    await submitter.follow();
    const isAllSubmitted = ended.aborted || (await submitter.submit());
    if (isAllSubmitted && !ended.aborted) await this.#callOthers(run, live, submitter);
    const nextMs = await submitter.follow();
    const hasSubmitted = (await submitter.excludedLines()).size > 0;
    if (hasSubmitted || (!isAllSubmitted && !ended.aborted)) {
      const waitMs = ended.aborted ? nextMs : Math.min(nextMs, Math.max(0, batch.leftMs));
      await this.#runs.guarded(run, (sql) => restBatchFor(sql, batch, waitMs));
      return false;
    }
    if (ended.aborted) await live.end();
    // Lines can have come back from a provider in the meantime.
    else if (await live.hasMore()) return true;
    const made = { output: newId("file"), errors: newId("file") };
    const endsAs = ended.aborted ? (ended.reason as BatchEnd) : "completed";
    await this.#runs.guarded(run, (sql) => finalizeBatch(sql, batch.id, endsAs, made));
    return true;
  }

  /** Calls the lines that no provider batch contains, and checks the provider batches at the same time. */
  async #callOthers(run: Run, live: LineRun, submitter: ProviderBatchSubmitter): Promise<void> {
    const finished = new AbortController();
    const calling = live.run(await submitter.excludedLines()).finally(() => finished.abort());
    const results = await Promise.allSettled([
      calling,
      this.#followUntil(finished.signal, run, submitter),
    ]);
    for (const result of results) if (result.status === "rejected") throw result.reason;
  }

  async #followUntil(
    finished: AbortSignal,
    run: Run,
    submitter: ProviderBatchSubmitter,
  ): Promise<void> {
    const { clock } = this.#dependencies;
    for (;;) {
      await waitUnless(clock, FOLLOW_MS, [finished, run.ended, run.abandoned]);
      if (finished.aborted || run.ended.aborted) return;
      run.abandoned.throwIfAborted();
      await waitUnless(clock, await submitter.follow(), [finished, run.ended, run.abandoned]);
    }
  }

  async #linesOf(
    run: Run,
    batch: BatchRecord,
  ): Promise<{ live: LineRun; submitter: ProviderBatchSubmitter }> {
    const { files: _, instance, ...rest } = this.#dependencies;
    const parts = {
      ...rest,
      slots: this.#slots,
      readInput: () => this.#readInput(batch),
      guarded: <Result>(write: (sql: DatabaseTransaction) => Promise<Result>) =>
        this.#runs.guarded(run, write),
      guard: (sql: DatabaseTransaction) => guardLease(sql, run.lease, instance),
      abandoned: run.abandoned,
      ended: run.ended,
    };
    const live = new LineRun(parts, batch);
    const submitter = new ProviderBatchSubmitter(
      {
        ...parts,
        waitWhileBusy: () => live.waitWhileBusy(),
        alreadyCalled: (lines) => live.calledAmong(lines),
      },
      batch,
    );
    return { live, submitter };
  }

  async #writeFiles(run: Run, batch: BatchRecord): Promise<void> {
    if (batch.outputFile !== null) {
      await this.#writeFile(batch, batch.outputFile, { name: "output", isFailed: false });
    }
    if (batch.errorFile !== null) {
      await this.#writeFile(batch, batch.errorFile, { name: "error", isFailed: true });
    }
    await this.#runs.guarded(run, async (sql) => emitEnd(sql, await endBatch(sql, batch.id)));
  }

  async #writeFile(
    { id: batchId, organizationId, keyId }: BatchRecord,
    id: string,
    { name, isFailed }: { readonly name: string; readonly isFailed: boolean },
  ): Promise<void> {
    const { sql, files, keyring } = this.#dependencies;
    const file = {
      ...{ id, organizationId, keyId },
      filename: `${batchId}_${name}.jsonl`,
      contentType: "application/jsonl",
      purpose: "batch_output",
    } as const;
    await files.announceResult(file);
    async function* content(): AsyncGenerator<Uint8Array> {
      for await (const sealed of readContents(sql, batchId, { isFailed }))
        yield keyring.open(sealed);
    }
    await files.writeResult(file, content());
  }

  async #clear(run: Run, batch: BatchRecord): Promise<void> {
    await (await this.#linesOf(run, batch)).submitter.clear();
    await this.#dependencies.files.release(batch.id);
    let isMore = true;
    while (isMore) isMore = await this.#runs.guarded(run, (sql) => removeLines(sql, batch.id));
    await this.#runs.guarded(run, (sql) => restBatch(sql, batch.id));
  }

  /**
   * Postpones the batch after an error. It is retried until it succeeds, so an unavailable or full file store loses no
   * answer.
   */
  async #postpone(run: Run, error: unknown): Promise<void> {
    const isForeseen =
      error instanceof GatewayError && (error.code === "quota_exceeded" || isOverload(error));
    if (!isForeseen) this.#dependencies.onError(error);
    await this.#runs.guarded(run, (sql) => postponeBatch(sql, run.lease.id, DELAYS));
  }

  #readInput({ id, organizationId, inputFile }: BatchRecord): Promise<ReadableStream<Uint8Array>> {
    return this.#dependencies.files.read({ fileId: inputFile, organizationId, holder: id });
  }
}

/** A batch that this instance owns. */
class Run extends OwnedRun {
  readonly #ended = new AbortController();
  #cancelExpiry: () => void = () => {};
  #isClosed = false;

  /** Aborts when no further lines must be called. The reason is the end of the batch. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /** Applies the current row: its cancellation, or the time at which it expires. */
  apply(batch: BatchRecord, clock: Clock): void {
    this.organizationId = batch.organizationId;
    this.#cancelExpiry();
    if (batch.status === "cancelling") this.#end("cancelled");
    else if (batch.leftMs <= 0) this.#end("expired");
    else if (!this.#isClosed) {
      this.#cancelExpiry = clock.after(batch.leftMs, () => this.#end("expired"));
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelExpiry();
  }

  /** Ends the batch. Does nothing if it has already ended. */
  #end(end: BatchEnd): void {
    if (!this.#ended.signal.aborted) this.#ended.abort(end);
  }
}

/** Writes the event of a batch that ended in this transaction. A cancelled batch has no event. */
async function emitEnd(sql: DatabaseTransaction, batch: BatchRecord | undefined): Promise<void> {
  if (batch === undefined || batch.status === "cancelled") return;
  const { organizationId, total, completed, failed, status, faults } = batch;
  const data = {
    batch_id: batch.id,
    key_id: batch.keyId,
    endpoint: batch.endpoint,
    request_counts: { total, completed, failed },
    output_file_id: batch.outputFile,
    error_file_id: batch.errorFile,
  };
  if (status === "completed") {
    await insertOutboxEvent(sql, batchCompleted.build(newId("evt"), organizationId, data));
    return;
  }
  const { code, message } = faults?.[0] ?? {
    code: "batch_expired",
    message: "The completion window ended before all lines were answered.",
  };
  const failure = { ...data, error: { code, message } };
  await insertOutboxEvent(sql, batchFailed.build(newId("evt"), organizationId, failure));
}
