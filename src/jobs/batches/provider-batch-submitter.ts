import type { DatabaseTransaction } from "../../../db/client.ts";
import { linesWithResult } from "../../../db/queries/batch-lines.ts";
import {
  deleteSubmittedLines,
  hasSubmittedLines,
  insertLinesEffect,
  insertProviderBatch,
  knownProviderBatches,
  linesAtProvider,
  noteProviderBatch,
  orderProviderBatch,
  type ProviderBatchRecord,
  providerBatchesOf,
  removeProviderBatch,
  roomForLines,
  submittedLines,
} from "../../../db/queries/provider-batches.ts";
import type { MoneyPort } from "../../billing/ledger/interface.ts";
import type { PreparedBatchLine } from "../../inference/call/batched-call.ts";
import type { BatchRecord } from "../../lib/batch.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { FoundBatches, NewBatch, ProviderBatches } from "../../providers/batches.ts";
import { type Provider, ProviderFailure } from "../../providers/interface.ts";
import { type BatchLine, readSomeLines } from "./input-lines.ts";
import { isGatewayError } from "./line-call.ts";
import type { LineRunParts } from "./line-run.ts";
import { ProviderBatchResults } from "./provider-batch-results.ts";

export interface SubmitterParts extends LineRunParts {
  readonly money: Pick<MoneyPort, "holdLongs" | "endLong">;
  /** The operator's providers. */
  readonly providers: ReadonlyMap<string, Provider>;
  /** Checks the lease in a transaction of the batch's owner. */
  guard(sql: DatabaseTransaction): Promise<void>;
  /** Waits while this instance is busy with client requests. */
  waitWhileBusy(): Promise<void>;
  /** Returns the lines that this gateway has already called. */
  alreadyCalled(lines: readonly BatchLine[]): Promise<ReadonlySet<number>>;
  warn(message: string): void;
}

/**
 * The states of a provider batch, which contains lines of one batch:
 *
 * - `filling`: the owner holds money for its lines. Nothing was sent. A later owner releases the holds and
 *   deletes it.
 * - `ordered`: stored before the single call that creates it. If the outcome of the call is unknown, the
 *   owner searches for the mark at the provider. The state is then `running` if the mark is found, and
 *   `lost` otherwise.
 * - `running`: the provider runs it, and the owner checks it from time to time.
 * - `read`: it has ended. Each line is charged, released, or called here.
 * - `lost`: the provider does not have it. If it appears later, it is cancelled after the batch has ended.
 */

/** Milliseconds until a created batch is visible at its provider. */
const ORDER_SETTLES_MS = 15_000;
/** Limits in milliseconds of the time between two checks. The time is a fraction of the age of the provider batch. */
const MIN_CHECK_INTERVAL_MS = 1_000;
const MAX_CHECK_INTERVAL_MS = 60_000;
const AGE_PARTS_PER_CHECK = 8;
/** Maximum milliseconds between two checks if the batch is to end. */
const MAX_ENDING_CHECK_INTERVAL_MS = 2_000;
/** Milliseconds after the end of the batch until an unreachable provider batch is abandoned. */
const GIVE_UP_MS = 6 * 3_600_000;
/**
 * Maximum number of lost provider batches of one batch. After that, lines are called here, so that a provider
 * is not paid for more lost batches.
 */
const MAX_LOST = 10;
/** Number of attempts to remove provider batches. The delay doubles after each one. */
const MAX_CLEAR_TRIES = 10;
/** Limits of a provider batch in memory before it is sent. The provider's limits apply in addition. */
const MAX_REQUESTS = 10_000;
const MAX_BYTES = 16 * 1024 * 1024;
const LINES_A_HOLD = 50;
const NO_MONEY: ReadonlySet<string> = new Set(["insufficient_credits", "budget_exhausted"]);

/** Lines that are submitted in one provider batch. */
interface Group {
  readonly first: PreparedBatchLine;
  readonly lines: { readonly line: number; readonly prepared: PreparedBatchLine }[];
  /** Number of requests, as the provider counts them. */
  count: number;
  bytes: number;
}

/** Submits lines of one batch to providers that run batches, and collects the results. */
export class ProviderBatchSubmitter {
  readonly #parts: SubmitterParts;
  readonly #batch: BatchRecord;
  readonly #results: ProviderBatchResults;
  /** Lines that wait for capacity or credit until a later check. */
  readonly #postponed = new Set<number>();

  constructor(parts: SubmitterParts, batch: BatchRecord) {
    this.#parts = parts;
    this.#batch = batch;
    this.#results = new ProviderBatchResults(parts, batch);
  }

  /** Returns the lines that must not be called now: they are at a provider, or wait for a later check. */
  async excludedLines(): Promise<ReadonlySet<number>> {
    const { out } = await submittedLines(this.#parts.sql, this.#batch.id);
    return out.union(this.#postponed);
  }

  /** Checks all provider batches. Resolves with the milliseconds until the next check. */
  async follow(): Promise<number> {
    const { sql, abandoned, ended } = this.#parts;
    let nextMs = MAX_CHECK_INTERVAL_MS;
    for (const record of await providerBatchesOf(sql, this.#batch.id)) {
      abandoned.throwIfAborted();
      nextMs = Math.min(nextMs, await this.#followOne(record));
    }
    return ended.aborted ? Math.min(nextMs, MAX_ENDING_CHECK_INTERVAL_MS) : nextMs;
  }

  async #followOne(record: ProviderBatchRecord): Promise<number> {
    if (record.state === "filling") {
      await this.#removeUncreated(record);
      return MAX_CHECK_INTERVAL_MS;
    }
    if (record.state !== "ordered" && record.state !== "running") return MAX_CHECK_INTERVAL_MS;
    try {
      const provider = this.#providerOf(record);
      if (record.state === "ordered") return await this.#find(record, provider.batches!);
      return await this.#check(record, provider);
    } catch (error) {
      if (!(error instanceof ProviderFailure)) throw error;
      this.#parts.abandoned.throwIfAborted();
      if (!this.#isOverdue) return MAX_CHECK_INTERVAL_MS;
      const { id, providerId } = record;
      this.#parts.warn(`batch ${id} of provider ${providerId} was abandoned: ${error.logMessage}`);
      await this.#markLost(record);
      return 0;
    }
  }

  /** Returns the provider of a provider batch. Throws ProviderFailure if it is no longer configured. */
  #providerOf({
    providerId,
    providerKey,
  }: Pick<ProviderBatchRecord, "providerId" | "providerKey">): Provider {
    const configured = this.#parts.providers.get(providerId);
    const provider =
      configured?.keys?.find(({ name }) => name === providerKey)?.provider ?? configured;
    if (provider?.batches !== undefined) return provider;
    throw new ProviderFailure(
      "unavailable",
      `no provider ${providerId} with batches is configured`,
    );
  }

  /** True if the batch should have ended long ago. */
  get #isOverdue(): boolean {
    const { leftMs, cancellingAtMs } = this.#batch;
    const { ended, clock } = this.#parts;
    if (!ended.aborted) return false;
    const sinceMs = cancellingAtMs === null ? -leftMs : clock.nowMs() - cancellingAtMs;
    return sinceMs > GIVE_UP_MS;
  }

  async #find(record: ProviderBatchRecord, batches: ProviderBatches): Promise<number> {
    const { guarded, abandoned } = this.#parts;
    const { id, ageMs } = record;
    const leftMs = ORDER_SETTLES_MS - ageMs!;
    if (leftMs > 0) return leftMs;
    const { batchIds, isCertain } = await this.#search(record, batches);
    const [providerBatch, ...duplicates] = batchIds;
    for (const duplicate of duplicates) await batches.cancel(duplicate, abandoned);
    if (providerBatch !== undefined) {
      await guarded((sql) => noteProviderBatch(sql, id, { state: "running", providerBatch }));
      return 0;
    }
    if (!isCertain) return this.#unended(MAX_CHECK_INTERVAL_MS);
    await this.#markLost(record);
    return 0;
  }

  async #search(
    { id: mark, orderedAtMs, requests, providerId }: ProviderBatchRecord,
    batches: ProviderBatches,
  ): Promise<FoundBatches> {
    const { sql, abandoned } = this.#parts;
    const otherIds = await knownProviderBatches(sql, providerId);
    // The clock of the database can be ahead of the provider's clock.
    const sinceMs = orderedAtMs! - MAX_CHECK_INTERVAL_MS;
    const isOther = (batchId: string) => otherIds.has(batchId);
    return batches.find({ mark, requests, sinceMs, isOther }, abandoned);
  }

  async #check(record: ProviderBatchRecord, provider: Provider): Promise<number> {
    const { guarded, abandoned, ended, sql } = this.#parts;
    const { id, ageMs, isCancelled } = record;
    const batches = provider.batches!;
    const batchId = record.providerBatch!;
    const { hasEnded, failure } = await batches.readState(batchId, abandoned);
    if (!hasEnded) {
      if (ended.aborted && !isCancelled) {
        await batches.cancel(batchId, abandoned);
        await guarded((sql) => noteProviderBatch(sql, id, { isCancelled: true }));
      }
      return this.#unended(
        Math.min(
          Math.max(ageMs! / AGE_PARTS_PER_CHECK, MIN_CHECK_INTERVAL_MS),
          MAX_CHECK_INTERVAL_MS,
        ),
      );
    }
    const { given: submitted, out } = await linesAtProvider(sql, id);
    if (failure === undefined) {
      const ids = new Set([...submitted].map(String));
      const results = batches.results({ batchId, mark: id, ids }, abandoned);
      await this.#results.settle(record, provider, results, out);
    }
    const isLater = failure?.kind === "rate_limited";
    if (isLater) for (const line of out.keys()) this.#postponed.add(line);
    await this.#results.releaseHolds(out.values(), { again: isLater || ended.aborted });
    if (isLater) {
      // Removed now, because several provider batches can be rejected before one is accepted.
      await batches.remove(batchId, abandoned);
      await guarded((sql) => removeProviderBatch(sql, id));
      return MAX_CHECK_INTERVAL_MS;
    }
    await guarded((sql) => noteProviderBatch(sql, id, { state: "read" }));
    return 0;
  }

  /**
   * Returns the milliseconds until the next check. A provider batch that never ends is abandoned like an
   * unreachable one.
   */
  #unended(nextMs: number): number {
    if (this.#isOverdue) throw new ProviderFailure("timeout", "the batch does not end");
    return nextMs;
  }

  /**
   * Removes a provider batch that the provider has not created. Its lines can be submitted again, or are called
   * here if `again` is false.
   */
  async #removeUncreated(
    { id }: Pick<ProviderBatchRecord, "id">,
    { again = true }: { readonly again?: boolean } = {},
  ): Promise<void> {
    await this.#releaseAllHolds(id, { again });
    await this.#parts.guarded((sql) => removeProviderBatch(sql, id));
  }

  /**
   * Marks a provider batch as lost. It can appear at the provider later. If too many are lost, the lines are
   * called here.
   */
  async #markLost({ id, batchId }: Pick<ProviderBatchRecord, "id" | "batchId">): Promise<void> {
    const { sql, guarded, ended } = this.#parts;
    const all = await providerBatchesOf(sql, batchId);
    const lost = all.filter(({ state }) => state === "lost");
    await this.#releaseAllHolds(id, { again: ended.aborted || lost.length < MAX_LOST });
    await guarded((sql) => noteProviderBatch(sql, id, { state: "lost" }));
  }

  async #releaseAllHolds(id: string, how: { readonly again: boolean }): Promise<void> {
    const { out } = await linesAtProvider(this.#parts.sql, id);
    await this.#results.releaseHolds(out.values(), how);
  }

  /** Removes the provider batches of a batch that has ended. */
  async clear(): Promise<void> {
    const { sql, guarded, warn } = this.#parts;
    for (const record of await providerBatchesOf(sql, this.#batch.id)) {
      const { id, providerId } = record;
      try {
        await this.#clearOne(record);
      } catch (error) {
        if (!(error instanceof ProviderFailure)) throw error;
        const what = `batch ${id} could not be removed from provider ${providerId}`;
        // The provider's message can quote a prompt.
        if (this.#batch.attempts < MAX_CLEAR_TRIES) throw new Error(`${what}: ${error.logMessage}`);
        warn(what);
      }
      await guarded((sql) => removeProviderBatch(sql, id));
    }
    await guarded((sql) => deleteSubmittedLines(sql, this.#batch.id));
  }

  async #clearOne(record: ProviderBatchRecord): Promise<void> {
    const { abandoned, warn } = this.#parts;
    const { id, state, providerBatch, providerId } = record;
    const batches = this.#providerOf(record).batches!;
    const orphans =
      providerBatch === null ? await this.#findOrphans(record, batches) : [providerBatch];
    for (const orphan of orphans) {
      if (state === "lost") {
        warn(
          `batch ${orphan} of provider ${providerId} is cancelled: it was recorded as lost (${id})`,
        );
        await batches.cancel(orphan, abandoned);
      }
      await batches.remove(orphan, abandoned);
    }
  }

  async #findOrphans(
    record: ProviderBatchRecord,
    batches: ProviderBatches,
  ): Promise<readonly string[]> {
    return record.orderedAtMs === null ? [] : (await this.#search(record, batches)).batchIds;
  }

  /**
   * Submits lines to providers that run batches. Returns false if lines must wait for credit: submit them before
   * other lines are called directly.
   */
  async submit(): Promise<boolean> {
    const { sql, providers, readInput, ended, abandoned } = this.#parts;
    this.#postponed.clear();
    if (!providers.values().some(takesBatches)) return true;
    const { out, back } = await submittedLines(sql, this.#batch.id);
    const done = (await linesWithResult(sql, this.#batch.id)).union(out).union(back);
    if (done.size >= this.#batch.total) return true;
    const groups = new Map<string, Group>();
    for await (const lines of readSomeLines(await readInput(), (line) => !done.has(line))) {
      const called = await this.#parts.alreadyCalled(lines);
      for (const line of lines) {
        if (called.has(line.line)) continue;
        await this.#parts.waitWhileBusy();
        abandoned.throwIfAborted();
        if (ended.aborted) return true;
        const full = await this.#group(line, groups);
        if (full !== undefined && !(await this.#order(full))) return false;
      }
    }
    for (const group of groups.values()) if (!(await this.#order(group))) return false;
    return true;
  }

  /** Adds a line to its group. Returns a group that is full, or the largest group if all together are too large. */
  async #group({ line, body }: BatchLine, groups: Map<string, Group>): Promise<Group | undefined> {
    const { organizationId, keyId, endpoint } = this.#batch;
    const prepared = await this.#parts.calls.prepare({ organizationId, keyId, endpoint, body });
    if (prepared === undefined) return undefined;
    const { limits } = prepared.candidate.provider.batches!;
    const maxBytes = Math.min(limits.maxBytes, MAX_BYTES);
    const { bytes, count } = prepared.request;
    if (bytes > maxBytes || count > limits.maxRequests) return undefined;
    const name = nameOfGroup(prepared);
    const before = groups.get(name);
    const isFull =
      before !== undefined &&
      (before.lines.length >= MAX_REQUESTS ||
        before.count + count > limits.maxRequests ||
        before.bytes + bytes > maxBytes);
    const none = { first: prepared, lines: [], count: 0, bytes: 0 };
    const group = before === undefined || isFull ? none : before;
    group.lines.push({ line, prepared });
    group.count += count;
    group.bytes += bytes;
    groups.set(name, group);
    if (isFull) return before;
    const all = [...groups];
    if (all.reduce((sum, [, group]) => sum + group.bytes, 0) <= MAX_BYTES) return undefined;
    const [largest] = all.toSorted(([, left], [, right]) => right.bytes - left.bytes);
    groups.delete(largest![0]);
    return largest![1];
  }

  /** Submits a group. Returns false if no credit covers some of the lines until others are charged. */
  async #order(group: Group): Promise<boolean> {
    const { guarded, ended, sql } = this.#parts;
    const { candidate, request } = group.first;
    const id = newId("pbat");
    const record = { id, batchId: this.#batch.id };
    await guarded((sql) =>
      insertProviderBatch(sql, {
        ...record,
        providerId: candidate.providerId,
        providerKey: candidate.key?.name ?? null,
        model: candidate.model.id,
        providerModel: candidate.upstreamModel,
        kind: request.kind,
        terms: candidate.terms,
      }),
    );
    const { held, isShort } = await this.#hold(record, group);
    if (held.length === 0 || ended.aborted) {
      await this.#removeUncreated(record);
      // If no credit will become free, the lines are rejected like calls.
      return !isShort || !(await hasSubmittedLines(sql, this.#batch.organizationId));
    }
    await guarded((sql) => orderProviderBatch(sql, id));
    await this.#create(id, group, held);
    return !isShort;
  }

  /**
   * Holds the money of a group's lines. Returns the lines that are held. Lines rejected for other reasons are
   * called here.
   */
  async #hold(
    record: { readonly id: string; readonly batchId: string },
    { lines }: Group,
  ): Promise<{ readonly held: Group["lines"]; readonly isShort: boolean }> {
    const { money, guard, sql } = this.#parts;
    const held: Group["lines"] = [];
    const within = withinRoom(lines, await roomForLines(sql, this.#batch.organizationId));
    for (let at = 0; at < within.length; at += LINES_A_HOLD) {
      const some = within.slice(at, at + LINES_A_HOLD);
      const refused = await money.holdLongs(
        some.map(({ prepared }) => prepared.hold),
        (ids) => {
          const granted = some.flatMap((line) => submittedLine(line, ids));
          return insertLinesEffect(record, granted, guard);
        },
      );
      held.push(...some.filter(({ prepared }) => !refused.has(prepared.hold.id)));
      const codes = [...refused.values()].map(codeOf);
      if (codes.some((code) => NO_MONEY.has(code))) return { held, isShort: true };
    }
    return { held, isShort: within.length < lines.length };
  }

  /** Creates the provider batch in a single call. An unknown outcome is resolved later. */
  async #create(id: string, { first }: Group, held: Group["lines"]): Promise<void> {
    const { guarded, abandoned } = this.#parts;
    const { candidate, request } = first;
    const batch: NewBatch = {
      ...{ mark: id, kind: request.kind, model: candidate.upstreamModel },
      requests: requestsOf(held),
    };
    try {
      const providerBatch = await candidate.provider.batches!.create(batch, abandoned);
      await guarded((sql) => noteProviderBatch(sql, id, { state: "running", providerBatch }));
    } catch (error) {
      if (!(error instanceof ProviderFailure)) throw error;
      abandoned.throwIfAborted();
      if (error.kind === "rate_limited") {
        for (const { line } of held) this.#postponed.add(line);
        await this.#removeUncreated({ id });
      } else if (REFUSALS.has(error.kind)) {
        await this.#removeUncreated({ id }, { again: false });
      } else {
        // Restarts the time until it must be visible, because the work before the call may have taken long.
        await guarded((sql) => orderProviderBatch(sql, id));
      }
    }
  }
}

/** Failures after which the provider batch does not exist, and would fail again. */
const REFUSALS: ReadonlySet<ProviderFailure["kind"]> = new Set([
  "rejected",
  "misconfigured",
  "content_policy",
]);

function takesBatches({ batches, keys }: Provider): boolean {
  return batches !== undefined || keys?.some(({ provider }) => takesBatches(provider)) === true;
}

/** Returns the name of a group, whose lines have the same provider batch and the same prices. */
function nameOfGroup({ candidate, request }: PreparedBatchLine): string {
  const { endpointId, model, terms } = candidate;
  const prices = JSON.stringify(terms.prices, (_, value) =>
    typeof value === "bigint" ? String(value) : value,
  );
  return `${endpointId}\n${model.id}\n${request.kind}\n${prices}`;
}

async function* requestsOf(lines: Group["lines"]): NewBatch["requests"] {
  for (const { line, prepared } of lines) yield { id: String(line), body: prepared.request.body };
}

function submittedLine({ line, prepared }: Group["lines"][number], ids: ReadonlySet<string>) {
  const { hold, feeBasisPoints } = prepared;
  if (!ids.has(hold.id)) return [];
  return [{ line, requestId: hold.id, feeBasisPoints: Number(feeBasisPoints) }];
}

/** Returns the first lines that fit the available amount. The first line can exceed it if no other line is held. */
function withinRoom(
  lines: Group["lines"],
  { roomNano, isEmpty }: Awaited<ReturnType<typeof roomForLines>>,
): Group["lines"] {
  if (roomNano === null) return lines;
  let heldNano = 0n;
  const beyond = lines.findIndex(({ prepared }) => {
    heldNano += prepared.hold.holdNano;
    return heldNano > roomNano;
  });
  return beyond < 0 ? lines : lines.slice(0, Math.max(beyond, isEmpty ? 1 : 0));
}

/** Returns the error code of a rejected line. Throws errors that do not concern the line. */
function codeOf(error: unknown): string {
  if (!(error instanceof GatewayError) || isGatewayError(error)) throw error;
  return error.code;
}
