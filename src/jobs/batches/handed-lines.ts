import type { DatabaseTransaction } from "../../../db/client.ts";
import { linesWithResult } from "../../../db/queries/batch-lines.ts";
import {
  forgetHandedLines,
  handedLinesOf,
  handLinesEffect,
  hasHandedLines,
  insertProviderBatch,
  knownProviderBatches,
  linesAtProvider,
  noteProviderBatch,
  orderProviderBatch,
  type ProviderBatchRecord,
  providerBatchesOf,
  removeProviderBatch,
  roomForLines,
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
import { ProviderBatchResults } from "./returned-lines.ts";

export interface HandedParts extends LineRunParts {
  readonly money: Pick<MoneyPort, "holdLongs" | "endLong">;
  /** The operator's. */
  readonly providers: ReadonlyMap<string, Provider>;
  /** Guards a transaction of the batch's owner. */
  guard(sql: DatabaseTransaction): Promise<void>;
  /** Waits while requests of clients have enough to do here. */
  calm(): Promise<void>;
  /** Those among lines that were called here already. */
  calledAmong(lines: readonly BatchLine[]): Promise<ReadonlySet<number>>;
  warn(message: string): void;
}

/*
 * A batch at a provider, with lines of one batch here:
 *
 * filling   its lines are being held; nothing was sent. The next owner gives the holds back and forgets it
 * ordered   written before the one call that creates it. Where the outcome of that is not known it is looked for by its
 *           mark: found it runs, else it is lost
 * running   it is at the provider, and looked at from time to time
 * read      it has ended, and each of its lines is charged, given back, or to be called here
 * lost      it is not there; should it show later, it is cancelled once the batch here has ended
 */

/** How long a batch may take to show at its provider. */
const ORDER_SETTLES_MS = 15_000;
/** Between two looks: a part of the time since it was ordered. */
const FIRST_LOOK_MS = 1_000;
const LONGEST_LOOK_MS = 60_000;
const LOOKS_A_WAIT = 8;
/** Where the batch here is to end. */
const LAST_LOOK_MS = 2_000;
/** For how long a provider that cannot be asked is waited for then. */
const PATIENCE_MS = 6 * 3_600_000;
/** Of one batch here. What has cost so many in vain is called, lest a provider be paid for each of them. */
const MAX_LOST = 10;
/** Each after a delay that doubles. */
const MAX_CLEAR_TRIES = 10;
/** What of a batch is in memory before it is ordered, within what the provider takes. */
const MAX_REQUESTS = 10_000;
const MAX_BYTES = 16 * 1024 * 1024;
const LINES_A_HOLD = 50;
const NO_MONEY: ReadonlySet<string> = new Set(["insufficient_credits", "budget_exhausted"]);

/** Lines that go to one batch of a provider. */
interface Group {
  readonly first: PreparedBatchLine;
  readonly lines: { readonly line: number; readonly handed: PreparedBatchLine }[];
  /** As the provider counts them. */
  count: number;
  bytes: number;
}

/** Lines of one batch that providers answer in batches of theirs. */
export class ProviderBatchSubmitter {
  readonly #parts: HandedParts;
  readonly #batch: BatchRecord;
  readonly #returned: ProviderBatchResults;
  /** Lines that wait for room, or for money, until a later look. */
  readonly #postponed = new Set<number>();

  constructor(parts: HandedParts, batch: BatchRecord) {
    this.#parts = parts;
    this.#batch = batch;
    this.#returned = new ProviderBatchResults(parts, batch);
  }

  /** Lines that are not to be called here now. */
  async elsewhere(): Promise<ReadonlySet<number>> {
    const { out } = await handedLinesOf(this.#parts.sql, this.#batch.id);
    return out.union(this.#postponed);
  }

  /** Looks at everything that is at providers. Resolves with the milliseconds until the next look. */
  async follow(): Promise<number> {
    const { sql, abandoned, ended } = this.#parts;
    let nextMs = LONGEST_LOOK_MS;
    for (const there of await providerBatchesOf(sql, this.#batch.id)) {
      abandoned.throwIfAborted();
      nextMs = Math.min(nextMs, await this.#followOne(there));
    }
    return ended.aborted ? Math.min(nextMs, LAST_LOOK_MS) : nextMs;
  }

  async #followOne(there: ProviderBatchRecord): Promise<number> {
    if (there.state === "filling") {
      await this.#dissolve(there);
      return LONGEST_LOOK_MS;
    }
    if (there.state !== "ordered" && there.state !== "running") return LONGEST_LOOK_MS;
    try {
      const provider = this.#providerOf(there);
      if (there.state === "ordered") return await this.#find(there, provider.batches!);
      return await this.#look(there, provider);
    } catch (error) {
      if (!(error instanceof ProviderFailure)) throw error;
      this.#parts.abandoned.throwIfAborted();
      if (!this.#isOverdue) return LONGEST_LOOK_MS;
      const { id, providerId } = there;
      this.#parts.warn(`batch ${id} of provider ${providerId} was given up: ${error.logMessage}`);
      await this.#giveUp(there);
      return 0;
    }
  }

  /** Throws ProviderFailure where the configuration does not name it any more. */
  #providerOf({
    providerId,
    providerKey,
  }: Pick<ProviderBatchRecord, "providerId" | "providerKey">): Provider {
    const known = this.#parts.providers.get(providerId);
    const provider = known?.keys?.find(({ name }) => name === providerKey)?.provider ?? known;
    if (provider?.batches !== undefined) return provider;
    throw new ProviderFailure(
      "unavailable",
      `no provider ${providerId} with batches is configured`,
    );
  }

  /** The batch here was to end long ago. */
  get #isOverdue(): boolean {
    const { leftMs, cancellingAtMs } = this.#batch;
    const { ended, clock } = this.#parts;
    if (!ended.aborted) return false;
    const sinceMs = cancellingAtMs === null ? -leftMs : clock.nowMs() - cancellingAtMs;
    return sinceMs > PATIENCE_MS;
  }

  async #find(there: ProviderBatchRecord, batches: ProviderBatches): Promise<number> {
    const { guarded, abandoned } = this.#parts;
    const { id, ageMs } = there;
    const leftMs = ORDER_SETTLES_MS - ageMs!;
    if (leftMs > 0) return leftMs;
    const { batchIds, isCertain } = await this.#search(there, batches);
    const [providerBatch, ...others] = batchIds;
    for (const other of others) await batches.cancel(other, abandoned);
    if (providerBatch !== undefined) {
      await guarded((sql) => noteProviderBatch(sql, id, { state: "running", providerBatch }));
      return 0;
    }
    if (!isCertain) return this.#unended(LONGEST_LOOK_MS);
    await this.#giveUp(there);
    return 0;
  }

  async #search(
    { id: mark, orderedAtMs, requests, providerId }: ProviderBatchRecord,
    batches: ProviderBatches,
  ): Promise<FoundBatches> {
    const { sql, abandoned } = this.#parts;
    const known = await knownProviderBatches(sql, providerId);
    // The clock of the database may be ahead of the provider's.
    const sinceMs = orderedAtMs! - LONGEST_LOOK_MS;
    const isOther = (batchId: string) => known.has(batchId);
    return batches.find({ mark, requests, sinceMs, isOther }, abandoned);
  }

  async #look(there: ProviderBatchRecord, provider: Provider): Promise<number> {
    const { guarded, abandoned, ended, sql } = this.#parts;
    const { id, ageMs, isCancelled } = there;
    const batches = provider.batches!;
    const batchId = there.providerBatch!;
    const { hasEnded, failure } = await batches.look(batchId, abandoned);
    if (!hasEnded) {
      if (ended.aborted && !isCancelled) {
        await batches.cancel(batchId, abandoned);
        await guarded((sql) => noteProviderBatch(sql, id, { isCancelled: true }));
      }
      return this.#unended(
        Math.min(Math.max(ageMs! / LOOKS_A_WAIT, FIRST_LOOK_MS), LONGEST_LOOK_MS),
      );
    }
    const { given, out } = await linesAtProvider(sql, id);
    if (failure === undefined) {
      const ids = new Set([...given].map(String));
      const results = batches.results({ batchId, mark: id, ids }, abandoned);
      await this.#returned.take(there, provider, results, out);
    }
    const isLater = failure?.kind === "rate_limited";
    if (isLater) for (const line of out.keys()) this.#postponed.add(line);
    await this.#returned.giveBack(out.values(), { again: isLater || ended.aborted });
    if (isLater) {
      // There may be many of them before one finds room.
      await batches.remove(batchId, abandoned);
      await guarded((sql) => removeProviderBatch(sql, id));
      return LONGEST_LOOK_MS;
    }
    await guarded((sql) => noteProviderBatch(sql, id, { state: "read" }));
    return 0;
  }

  /** One that does not end is given up like one that cannot be asked. */
  #unended(nextMs: number): number {
    if (this.#isOverdue) throw new ProviderFailure("timeout", "the batch does not end");
    return nextMs;
  }

  /** Its lines are as if they had never been handed over, or, where not `again`, are to be called here. */
  async #dissolve(
    { id }: Pick<ProviderBatchRecord, "id">,
    { again = true }: { readonly again?: boolean } = {},
  ): Promise<void> {
    await this.#giveBackAll(id, { again });
    await this.#parts.guarded((sql) => removeProviderBatch(sql, id));
  }

  /** The same, but that it may show at the provider later; after many of them its lines are to be called here. */
  async #giveUp({ id, batchId }: Pick<ProviderBatchRecord, "id" | "batchId">): Promise<void> {
    const { sql, guarded, ended } = this.#parts;
    const all = await providerBatchesOf(sql, batchId);
    const lost = all.filter(({ state }) => state === "lost");
    await this.#giveBackAll(id, { again: ended.aborted || lost.length < MAX_LOST });
    await guarded((sql) => noteProviderBatch(sql, id, { state: "lost" }));
  }

  async #giveBackAll(id: string, how: { readonly again: boolean }): Promise<void> {
    const { out } = await linesAtProvider(this.#parts.sql, id);
    await this.#returned.giveBack(out.values(), how);
  }

  /** Of a batch that has ended: leaves nothing of it at providers. */
  async clear(): Promise<void> {
    const { sql, guarded, warn } = this.#parts;
    for (const there of await providerBatchesOf(sql, this.#batch.id)) {
      const { id, providerId } = there;
      try {
        await this.#clearOne(there);
      } catch (error) {
        if (!(error instanceof ProviderFailure)) throw error;
        const what = `batch ${id} could not be removed from provider ${providerId}`;
        // What a provider says may quote a prompt.
        if (this.#batch.attempts < MAX_CLEAR_TRIES) throw new Error(`${what}: ${error.logMessage}`);
        warn(what);
      }
      await guarded((sql) => removeProviderBatch(sql, id));
    }
    await guarded((sql) => forgetHandedLines(sql, this.#batch.id));
  }

  async #clearOne(there: ProviderBatchRecord): Promise<void> {
    const { abandoned, warn } = this.#parts;
    const { id, state, providerBatch, providerId } = there;
    const batches = this.#providerOf(there).batches!;
    const strays = providerBatch === null ? await this.#strays(there, batches) : [providerBatch];
    for (const stray of strays) {
      if (state === "lost") {
        warn(
          `batch ${stray} of provider ${providerId} is cancelled: it was taken for lost as ${id}`,
        );
        await batches.cancel(stray, abandoned);
      }
      await batches.remove(stray, abandoned);
    }
  }

  async #strays(there: ProviderBatchRecord, batches: ProviderBatches): Promise<readonly string[]> {
    return there.orderedAtMs === null ? [] : (await this.#search(there, batches)).batchIds;
  }

  /** Gives lines to providers that take them in batches. False where it has to go on later, before others are called. */
  async handOver(): Promise<boolean> {
    const { sql, providers, readInput, ended, abandoned } = this.#parts;
    this.#postponed.clear();
    if (!providers.values().some(takesBatches)) return true;
    const { out, back } = await handedLinesOf(sql, this.#batch.id);
    const done = (await linesWithResult(sql, this.#batch.id)).union(out).union(back);
    if (done.size >= this.#batch.total) return true;
    const groups = new Map<string, Group>();
    for await (const lines of readSomeLines(await readInput(), (line) => !done.has(line))) {
      const called = await this.#parts.calledAmong(lines);
      for (const line of lines) {
        if (called.has(line.line)) continue;
        await this.#parts.calm();
        abandoned.throwIfAborted();
        if (ended.aborted) return true;
        const full = await this.#group(line, groups);
        if (full !== undefined && !(await this.#order(full))) return false;
      }
    }
    for (const group of groups.values()) if (!(await this.#order(group))) return false;
    return true;
  }

  /** Returns a group that is full, or the largest of many. */
  async #group({ line, body }: BatchLine, groups: Map<string, Group>): Promise<Group | undefined> {
    const { organizationId, keyId, endpoint } = this.#batch;
    const handed = await this.#parts.calls.hand({ organizationId, keyId, endpoint, body });
    if (handed === undefined) return undefined;
    const { limits } = handed.candidate.provider.batches!;
    const maxBytes = Math.min(limits.maxBytes, MAX_BYTES);
    const { bytes, count } = handed.request;
    if (bytes > maxBytes || count > limits.maxRequests) return undefined;
    const name = nameOfGroup(handed);
    const before = groups.get(name);
    const isFull =
      before !== undefined &&
      (before.lines.length >= MAX_REQUESTS ||
        before.count + count > limits.maxRequests ||
        before.bytes + bytes > maxBytes);
    const none = { first: handed, lines: [], count: 0, bytes: 0 };
    const group = before === undefined || isFull ? none : before;
    group.lines.push({ line, handed });
    group.count += count;
    group.bytes += bytes;
    groups.set(name, group);
    if (isFull) return before;
    const all = [...groups];
    if (all.reduce((sum, [, one]) => sum + one.bytes, 0) <= MAX_BYTES) return undefined;
    const [largest] = all.toSorted(([, one], [, other]) => other.bytes - one.bytes);
    groups.delete(largest![0]);
    return largest![1];
  }

  /** False where there is no money for some of the lines until others are charged. */
  async #order(group: Group): Promise<boolean> {
    const { guarded, ended, sql } = this.#parts;
    const { candidate, request } = group.first;
    const id = newId("pbat");
    const there = { id, batchId: this.#batch.id };
    await guarded((sql) =>
      insertProviderBatch(sql, {
        ...there,
        providerId: candidate.providerId,
        providerKey: candidate.key?.name ?? null,
        model: candidate.model.id,
        providerModel: candidate.upstreamModel,
        kind: request.kind,
        terms: candidate.terms,
      }),
    );
    const { held, isShort } = await this.#hold(there, group);
    if (held.length === 0 || ended.aborted) {
      await this.#dissolve(there);
      // Where nothing is to come free they are refused as calls are.
      return !isShort || !(await hasHandedLines(sql, this.#batch.organizationId));
    }
    await guarded((sql) => orderProviderBatch(sql, id));
    await this.#create(id, group, held);
    return !isShort;
  }

  /** The lines of a group that there is money for. Those that are refused for something else are left to be called. */
  async #hold(
    there: { readonly id: string; readonly batchId: string },
    { lines }: Group,
  ): Promise<{ readonly held: Group["lines"]; readonly isShort: boolean }> {
    const { money, guard, sql } = this.#parts;
    const held: Group["lines"] = [];
    const within = withinRoom(lines, await roomForLines(sql, this.#batch.organizationId));
    for (let at = 0; at < within.length; at += LINES_A_HOLD) {
      const some = within.slice(at, at + LINES_A_HOLD);
      const refused = await money.holdLongs(
        some.map(({ handed }) => handed.hold),
        (ids) => {
          const granted = some.flatMap((one) => handedLine(one, ids));
          return handLinesEffect(there, granted, guard);
        },
      );
      held.push(...some.filter(({ handed }) => !refused.has(handed.hold.id)));
      const codes = [...refused.values()].map(codeOf);
      if (codes.some((code) => NO_MONEY.has(code))) return { held, isShort: true };
    }
    return { held, isShort: within.length < lines.length };
  }

  /** The one call that makes it. What is not known of its outcome is found out later. */
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
        await this.#dissolve({ id });
      } else if (REFUSALS.has(error.kind)) {
        await this.#dissolve({ id }, { again: false });
      } else {
        // It may take its time to show from now on: what went before the call may have been long.
        await guarded((sql) => orderProviderBatch(sql, id));
      }
    }
  }
}

/** Of what was certainly not created, and would not be the next time. */
const REFUSALS: ReadonlySet<ProviderFailure["kind"]> = new Set([
  "rejected",
  "misconfigured",
  "content_policy",
]);

function takesBatches({ batches, keys }: Provider): boolean {
  return batches !== undefined || keys?.some(({ provider }) => takesBatches(provider)) === true;
}

/** Of what stands in one batch, and is billed alike. */
function nameOfGroup({ candidate, request }: PreparedBatchLine): string {
  const { endpointId, model, terms } = candidate;
  const prices = JSON.stringify(terms.prices, (_, value) =>
    typeof value === "bigint" ? String(value) : value,
  );
  return `${endpointId}\n${model.id}\n${request.kind}\n${prices}`;
}

async function* requestsOf(lines: Group["lines"]): NewBatch["requests"] {
  for (const { line, handed } of lines) yield { id: String(line), body: handed.request.body };
}

function handedLine({ line, handed }: Group["lines"][number], ids: ReadonlySet<string>) {
  const { hold, feeBasisPoints } = handed;
  if (!ids.has(hold.id)) return [];
  return [{ line, requestId: hold.id, feeBasisPoints: Number(feeBasisPoints) }];
}

/** From the first on; one that is alone may take more than its half. */
function withinRoom(
  lines: Group["lines"],
  { roomNano, isEmpty }: Awaited<ReturnType<typeof roomForLines>>,
): Group["lines"] {
  if (roomNano === null) return lines;
  let heldNano = 0n;
  const beyond = lines.findIndex(({ handed }) => {
    heldNano += handed.hold.holdNano;
    return heldNano > roomNano;
  });
  return beyond < 0 ? lines : lines.slice(0, Math.max(beyond, isEmpty ? 1 : 0));
}

/** Throws what says nothing of the line. */
function codeOf(error: unknown): string {
  if (!(error instanceof GatewayError) || isGatewayError(error)) throw error;
  return error.code;
}
