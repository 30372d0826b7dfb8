import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import {
  countLines,
  hasContents,
  linesWithResult,
  writeContents,
} from "../../../db/queries/batch-lines.ts";
import {
  claimsAmong,
  findStoredResult,
  removeStoredResult,
} from "../../../db/queries/idempotency.ts";
import type { InternalIdempotencyKey } from "../../inference/call/call.ts";
import type { BatchEnd, BatchRecord } from "../../lib/batch.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import type { GatewayError } from "../../lib/errors.ts";
import type { FairSemaphore } from "../../lib/fair-share.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { type BatchLine, readSomeLines } from "./input-lines.ts";
import {
  isGatewayError,
  isRetryable,
  type LineAnswer,
  type LineCalls,
  type LineRefusal,
} from "./line-call.ts";
import { answerPieces, uncalledPieces } from "./line-results.ts";

export interface LineRunParts {
  readonly sql: Database;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly calls: LineCalls;
  /** Bounds the concurrent calls of all batches of this instance. */
  readonly slots: FairSemaphore;
  /** True while this instance is busy with client requests. */
  isBusy(): boolean;
  readInput(): Promise<ReadableStream<Uint8Array>>;
  /** Runs a transaction of the batch's owner. */
  guarded<Result>(write: (sql: DatabaseTransaction) => Promise<Result>): Promise<Result>;
  /** Aborts if this instance loses the batch or stops. */
  readonly abandoned: AbortSignal;
  /** Aborts if the batch must end early. The reason is its end. */
  readonly ended: AbortSignal;
}

/** Maximum concurrent calls of one batch. */
export const LINES_AT_A_TIME = 8;
const BUSY_PAUSE_MS = 200;
/** Number of attempts of a request that its providers fail. */
const MAX_TRIES = 5;
const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 60_000;

/**
 * Calls the lines of one batch. Each line is a paid call with its own idempotency key. If an owner dies after
 * the charge, the next owner finds the answer under that key. The transaction that writes the answer into the
 * batch removes it there. An answer that is too large for this is written into the batch before its charge.
 */
export class LineRun {
  readonly #parts: LineRunParts;
  readonly #batch: BatchRecord;

  constructor(parts: LineRunParts, batch: BatchRecord) {
    this.#parts = parts;
    this.#batch = batch;
  }

  /**
   * Calls the lines. Resolves when every line except the `excluded` ones has its result, or when the batch
   * must end.
   */
  async run(excluded: ReadonlySet<number>): Promise<void> {
    const done = await linesWithResult(this.#parts.sql, this.#batch.id);
    await this.#callAll(done.union(excluded));
  }

  /** Returns true if lines without a result remain. */
  async hasMore(): Promise<boolean> {
    return (await linesWithResult(this.#parts.sql, this.#batch.id)).size < this.#batch.total;
  }

  /** Writes the end of the batch as the result of all uncalled lines. */
  async end(): Promise<void> {
    await this.#endRest(await linesWithResult(this.#parts.sql, this.#batch.id));
  }

  /** Returns the lines that were already called. */
  async calledAmong(lines: readonly BatchLine[]): Promise<ReadonlySet<number>> {
    return new Set((await this.#claimsOf(lines)).keys());
  }

  async #callAll(done: Set<number>): Promise<void> {
    const { ended, abandoned } = this.#parts;
    const running = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    const mustStop = () => failure !== undefined || ended.aborted || abandoned.aborted;
    try {
      for await (const lines of this.#linesWithout(done)) {
        const claims = await this.#claimsOf(lines);
        for (const line of lines) {
          while (running.size >= LINES_AT_A_TIME) await Promise.race(running);
          await this.waitWhileBusy();
          if (mustStop()) break;
          const claim = claims.get(line.line);
          const call: Promise<void> = (
            claim?.isDone === true ? this.#writeStored(line, claim.requestId) : this.#callLine(line)
          )
            .then((isDone) => void (isDone && done.add(line.line)))
            .catch((error: unknown) => {
              failure ??= { error };
            })
            .finally(() => running.delete(call));
          running.add(call);
        }
        if (mustStop()) break;
      }
    } finally {
      // Also awaited if the input breaks off, because the next run must not meet calls of this one.
      await Promise.all(running);
    }
    if (failure !== undefined) throw failure.error;
    abandoned.throwIfAborted();
  }

  async *#linesWithout(done: ReadonlySet<number>): AsyncGenerator<readonly BatchLine[]> {
    yield* readSomeLines(await this.#parts.readInput(), (line) => !done.has(line));
  }

  /** Waits while client requests need the capacity. */
  async waitWhileBusy(): Promise<void> {
    const { isBusy, ended, abandoned } = this.#parts;
    while (isBusy() && !ended.aborted && !abandoned.aborted) await this.#wait(BUSY_PAUSE_MS);
  }

  /** Calls a line until it has a result. Returns false if the batch ended before the line was answered. */
  async #callLine(line: BatchLine): Promise<boolean> {
    const { slots, ended, abandoned } = this.#parts;
    for (let tries = 1; ; tries++) {
      const { organizationId } = this.#batch;
      const refusal = await slots.run(organizationId, () => this.#tryLine(line));
      if (refusal === undefined) return true;
      abandoned.throwIfAborted();
      const { error } = refusal;
      if (isGatewayError(error) || (await this.#runsElsewhere(line, error))) tries--;
      else if (!isRetryable(error) || tries >= MAX_TRIES) {
        // An earlier attempt may have been charged although its outcome was unknown.
        const claim = (await this.#claimsOf([line])).get(line.line);
        if (claim?.isDone === true) return this.#writeStored(line, claim.requestId);
        await this.#write(line, await refusal.answer(), true);
        refusal.note();
        return true;
      }
      if (ended.aborted) return false;
      const delayMs = Math.min(FIRST_DELAY_MS * 2 ** Math.max(0, tries - 1), LONGEST_DELAY_MS);
      await this.#wait(Math.max(delayMs, (error.retryAfterSeconds ?? 0) * 1_000));
      if (ended.aborted) return false;
    }
  }

  /**
   * Returns true if a call of the line is still running, such as one of an earlier owner. It can still be
   * answered and charged.
   */
  async #runsElsewhere(line: BatchLine, { code }: GatewayError): Promise<boolean> {
    if (code !== "idempotency_conflict") return false;
    return (await this.#claimsOf([line])).get(line.line)?.isDone === false;
  }

  /** Calls a line once. Returns undefined if the answer is written. */
  async #tryLine(line: BatchLine): Promise<LineRefusal | undefined> {
    const { calls, keyring, guarded } = this.#parts;
    const { id, organizationId, keyId, endpoint } = this.#batch;
    const storeLargeResult = (answer: LineAnswer) =>
      guarded((sql) =>
        writeContents(sql, id, {
          line: line.line,
          pieces: answerPieces(id, line, answer, keyring),
        }),
      );
    const { body } = line;
    const idempotency = this.#idempotencyOf(line.line);
    const call = { organizationId, keyId, endpoint, body, idempotency, storeLargeResult };
    const answer = await calls.call(call);
    if ("error" in answer) {
      if (answer.error.code !== "idempotency_conflict") return answer;
      const claim = (await this.#claimsOf([line])).get(line.line);
      const isCounted =
        claim?.isDone === true && (await this.#countLarge(line.line, claim.requestId));
      return isCounted ? undefined : answer;
    }
    const first = answer.isReplay ? (await this.#claimsOf([line])).get(line.line) : undefined;
    await this.#write(line, { ...answer, requestId: first?.requestId ?? answer.requestId }, false);
    return undefined;
  }

  /** Counts an answer that was written before its charge. Returns false if there is none. */
  async #countLarge(line: number, requestId: string): Promise<boolean> {
    if (!(await hasContents(this.#parts.sql, this.#batch.id, line))) return false;
    await this.#count({ line, requestId, isFailed: false }, undefined);
    return true;
  }

  async #write(line: BatchLine, answer: LineAnswer, isFailed: boolean): Promise<void> {
    const { id } = this.#batch;
    const pieces = answerPieces(id, line, answer, this.#parts.keyring);
    const { requestId } = answer;
    await this.#count({ line: line.line, requestId, isFailed }, (sql) =>
      writeContents(sql, id, { line: line.line, pieces }),
    );
  }

  /** Writes the result of the line and removes its stored call in one transaction. */
  async #count(
    counted: Parameters<typeof countLines>[2][number],
    write: ((sql: DatabaseTransaction) => Promise<void>) | undefined,
  ): Promise<void> {
    await this.#parts.guarded(async (sql) => {
      await write?.(sql);
      await countLines(sql, this.#batch.id, [counted]);
      await removeStoredResult(sql, this.#idempotencyOf(counted.line));
    });
  }

  /** Writes the answer of a line that an earlier owner has called and paid, but not written into the batch. */
  async #writeStored(line: BatchLine, requestId: string): Promise<boolean> {
    const { sql, keyring } = this.#parts;
    const stored = await findStoredResult(sql, this.#idempotencyOf(line.line));
    if (stored === undefined) return this.#callLine(line);
    if (stored.body === null) {
      if (await this.#countLarge(line.line, requestId)) return true;
      throw new Error(
        `the answer of line ${line.line} of ${this.#batch.id} was charged, but is no longer stored`,
      );
    }
    const body = keyring.open(stored.body);
    await this.#write(line, { status: stored.status, requestId, body, isReplay: true }, false);
    return true;
  }

  /** Writes a result for each remaining line: its answer if it was called, and the reason of the end otherwise. */
  async #endRest(done: ReadonlySet<number>): Promise<void> {
    const { keyring, guarded, ended, abandoned } = this.#parts;
    const { id } = this.#batch;
    const end = ended.reason as Exclude<BatchEnd, "completed">;
    for await (const lines of this.#linesWithout(done)) {
      const claims = await this.#endedClaimsOf(lines);
      const uncalled = lines.filter(({ line }) => !claims.has(line));
      for (const line of lines) {
        abandoned.throwIfAborted();
        const claim = claims.get(line.line);
        if (claim !== undefined) await this.#writeStored(line, claim.requestId);
      }
      await guarded(async (sql) => {
        for (const line of uncalled) {
          const pieces = uncalledPieces(id, line, end, keyring);
          await writeContents(sql, id, { line: line.line, pieces });
        }
        const failed = uncalled.map(({ line }) => ({
          ...{ line, isFailed: true, requestId: undefined },
        }));
        await countLines(sql, id, failed);
      });
    }
  }

  /** Waits until no call of the lines is running, such as one of a dead instance, and returns the claims. */
  async #endedClaimsOf(lines: readonly BatchLine[]) {
    const { clock, abandoned } = this.#parts;
    for (;;) {
      abandoned.throwIfAborted();
      const claims = await this.#claimsOf(lines);
      if (claims.values().every(({ isDone }) => isDone)) return claims;
      await sleep(clock, BUSY_PAUSE_MS);
    }
  }

  /** Returns the claims of called lines, by line. */
  async #claimsOf(lines: readonly BatchLine[]) {
    const { sql } = this.#parts;
    const keys = lines.map(({ line }) => String(line));
    const claims = await claimsAmong(sql, this.#batch.id, keys);
    return new Map([...claims].map(([key, claim]) => [Number(key), claim]));
  }

  /** Returns the key of a line's call. It has the batch in place of an API key, so no client's key equals it. */
  #idempotencyOf(line: number): InternalIdempotencyKey {
    return { keyId: this.#batch.id, idempotencyKey: String(line) };
  }

  /** Waits. Ends early if the batch ends or is lost. */
  #wait(delayMs: number): Promise<void> {
    const { clock, ended, abandoned } = this.#parts;
    return waitUnless(clock, delayMs, [ended, abandoned]);
  }
}

/** Waits. Ends early if one of the signals aborts. */
export async function waitUnless(
  clock: Clock,
  delayMs: number,
  signals: readonly AbortSignal[],
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const wake = () => resolve();
  const cancel = clock.after(delayMs, wake);
  for (const signal of signals) signal.addEventListener("abort", wake);
  if (!signals.some(({ aborted }) => aborted)) await promise;
  cancel();
  for (const signal of signals) signal.removeEventListener("abort", wake);
}
