import type { DatabaseTransaction } from "../../../db/client.ts";
import { countLines, writeContents } from "../../../db/queries/batch-lines.ts";
import {
  endSubmittedLines,
  type ProviderBatchRecord,
  resubmitLines,
  type SubmittedLine,
} from "../../../db/queries/provider-batches.ts";
import type { SettlementFigures } from "../../billing/ledger/interface.ts";
import type { UnwrittenCharge } from "../../inference/call/call-charge.ts";
import { asCallerError } from "../../inference/call/routing/provider-error.ts";
import type { BatchRecord } from "../../lib/batch.ts";
import { timeOfId } from "../../lib/ids.ts";
import type { BatchResult } from "../../providers/batches.ts";
import type { Provider } from "../../providers/interface.ts";
import { type BatchLine, readBatchLines } from "./input-lines.ts";
import { isGatewayError, isOverload, isRetryable, type LineAnswer } from "./line-call.ts";
import { answerPieces } from "./line-results.ts";
import type { SubmitterParts } from "./provider-batch-submitter.ts";

/** Maximum results in memory at a time. */
const RESULTS_AT_A_TIME = 500;
const BYTES_AT_A_TIME = 8 * 1024 * 1024;
/** Lines that are charged in one transaction. */
const LINES_A_CHARGE = 50;

/** A line of a provider batch with its hold. */
export type HeldLine = SubmittedLine & { readonly holdNano: bigint };

/** The result of a line. Without an answer, the line is called like others. */
interface Returned {
  readonly held: HeldLine;
  readonly input: BatchLine;
  readonly answer?: LineAnswer & { readonly charge?: UnwrittenCharge };
  note?(): void;
}

/**
 * Writes the answers of provider batches into their batch. Each answer runs through the endpoint of its line
 * as if it had come live. One transaction charges lines and counts them, so a restarted process repeats only
 * unwritten work.
 */
export class ProviderBatchResults {
  readonly #parts: SubmitterParts;
  readonly #batch: BatchRecord;

  constructor(parts: SubmitterParts, batch: BatchRecord) {
    this.#parts = parts;
    this.#batch = batch;
  }

  /** Writes the results of lines in `out`, and removes these lines from `out`. */
  async settle(
    from: ProviderBatchRecord,
    provider: Provider,
    results: AsyncIterable<BatchResult>,
    out: Map<number, HeldLine>,
  ): Promise<void> {
    let some = new Map<number, BatchResult>();
    let bytes = 0;
    const settle = async () => {
      await this.#settle(from, provider, some, out);
      some = new Map();
      bytes = 0;
    };
    for await (const result of results) {
      const line = Number(result.id);
      if (!out.has(line)) continue;
      some.set(line, result);
      if ("answer" in result) bytes += result.answer.body.byteLength;
      if (some.size >= RESULTS_AT_A_TIME || bytes >= BYTES_AT_A_TIME) await settle();
    }
    if (some.size > 0) await settle();
  }

  /**
   * Releases the holds of lines that the provider did not run. If `again` is true, the lines can be submitted
   * again. Otherwise they are called here.
   */
  async releaseHolds(
    lines: Iterable<SubmittedLine>,
    { again }: { readonly again: boolean },
  ): Promise<void> {
    const ids = [...lines].map(({ requestId }) => requestId);
    for (let at = 0; at < ids.length; at += LINES_A_CHARGE) {
      const some = ids.slice(at, at + LINES_A_CHARGE);
      await this.#end(new Map(some.map((id) => [id, undefined])), (sql, ended) =>
        again
          ? resubmitLines(sql, this.#batch.id, ended)
          : endSubmittedLines(sql, this.#batch.id, ended),
      );
    }
  }

  /**
   * Settles results. The bodies of the lines are read from the input again, so that waiting lines use no
   * memory.
   */
  async #settle(
    from: ProviderBatchRecord,
    provider: Provider,
    results: ReadonlyMap<number, BatchResult>,
    out: Map<number, HeldLine>,
  ): Promise<void> {
    const { readInput, waitWhileBusy, abandoned } = this.#parts;
    let returned: Returned[] = [];
    const write = async () => {
      await waitWhileBusy();
      abandoned.throwIfAborted();
      await this.#write(returned);
      for (const { held } of returned) out.delete(held.line);
      returned = [];
    };
    const lines = readBatchLines(await readInput(), (line) => results.has(line));
    for await (const { size: _, ...input } of lines) {
      const result = results.get(input.line)!;
      returned.push(await this.#returned(from, provider, input, result, out.get(input.line)!));
      if (returned.length >= LINES_A_CHARGE) await write();
    }
    if (returned.length > 0) await write();
  }

  async #returned(
    from: ProviderBatchRecord,
    provider: Provider,
    input: BatchLine,
    result: BatchResult,
    held: HeldLine,
  ): Promise<Returned> {
    const { calls, clock } = this.#parts;
    const { id: batchId, organizationId, keyId, endpoint } = this.#batch;
    const { requestId, holdNano, feeBasisPoints } = held;
    const { model, providerModel, providerId, terms } = from;
    const line = { organizationId, keyId, endpoint, body: input.body };
    const ended =
      "failure" in result
        ? calls.failed(line, requestId, asCallerError(result.failure, [providerId]))
        : await calls.settle(line, requestId, {
            endpoint: { model, terms, providerId, provider, providerModel },
            hold: { organizationId, keyId, holdNano },
            feeBasisPoints: BigInt(feeBasisPoints),
            answer: result.answer,
            batchId,
            latencyMs: clock.nowMs() - timeOfId(requestId),
          });
    if (!("error" in ended)) {
      const note = () => {
        ended.charge.onWritten();
        ended.note();
      };
      return { held, input, answer: ended, note };
    }
    // The answer stays at the provider, and is read again when the gateway is no longer overloaded.
    if (isOverload(ended.error)) throw ended.error;
    // A retryable failure is tried again as a call.
    if (isRetryable(ended.error) || isGatewayError(ended.error)) return { held, input };
    return { held, input, answer: await ended.answer(), note: () => ended.note() };
  }

  async #write(lines: readonly Returned[]): Promise<void> {
    const { guarded, keyring } = this.#parts;
    const { id } = this.#batch;
    // In a separate transaction, because all charges share one connection.
    await guarded(async (sql) => {
      for (const { input, answer } of lines) {
        if (answer === undefined) continue;
        const pieces = answerPieces(id, input, answer, keyring);
        await writeContents(sql, id, { line: input.line, pieces });
      }
    });
    const ends = lines.map(
      ({ held, answer }) => [held.requestId, answer?.charge?.figures] as const,
    );
    await this.#end(new Map(ends), async (sql, ended) => {
      await endSubmittedLines(sql, id, ended);
      const answered = lines.filter(
        ({ held, answer }) => answer !== undefined && ended.has(held.requestId),
      );
      await countLines(
        sql,
        id,
        answered.map(({ held: { line, requestId }, answer }) => ({
          ...{ line, requestId },
          isFailed: answer!.charge === undefined,
        })),
      );
      for (const { answer } of answered) await answer!.charge?.event?.run(sql);
    });
    for (const { note } of lines) note?.();
  }

  #end(
    ends: ReadonlyMap<string, SettlementFigures | undefined>,
    also: (sql: DatabaseTransaction, ended: ReadonlySet<string>) => Promise<void>,
  ): Promise<void> {
    const { money, guard } = this.#parts;
    return money.endLong(ends, {
      kind: "statement",
      name: "batch-lines-end",
      tables: ["provider_batch_lines", "batch_lines", "batches"],
      events: ["completion.success"],
      async run(sql, ended) {
        await guard(sql);
        await also(sql, ended);
      },
    });
  }
}
