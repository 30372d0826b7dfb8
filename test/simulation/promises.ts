import type { GatewayError } from "../../src/lib/errors.ts";
import type { ClientSide } from "./front.ts";
import { LedgerPromises } from "./ledger-promises.ts";
import { MoneyHistory } from "./money-history.ts";
import type { ModelContext } from "./postgres/model-context.ts";
import type { Observer } from "./postgres/server.ts";
import type { TransactionRow } from "./postgres/tables.ts";
import type { Change, Transaction } from "./postgres/transaction.ts";
import type { RequestRecord } from "./request-record.ts";
import { broken, Violation } from "./violation.ts";

const MAX_AHEAD_TOKENS = 256;
const MAX_AHEAD_MS = 1_000;
const MAX_WAIT_MS = 2_000;

/** Watches one schedule: what is committed, what leaves, and what is left in the end. */
export class Promises implements Observer, ClientSide {
  readonly history: MoneyHistory;
  readonly ledger: LedgerPromises;
  readonly #context: ModelContext;
  readonly #nowMs: () => number;
  readonly #note: (text: string) => void;
  /** The first thing that went wrong. */
  failure: Error | undefined;
  readonly counts = { answered: 0, failed: 0, refused: 0, delivered: 0, commits: 0 };

  constructor(
    context: ModelContext,
    nowMs: () => number,
    note: (text: string) => void,
    requests: ReadonlyMap<string, RequestRecord>,
  ) {
    this.#context = context;
    this.#nowMs = nowMs;
    this.#note = note;
    this.history = new MoneyHistory(context.tables, nowMs);
    this.ledger = new LedgerPromises(context.tables, this.history, requests);
  }

  /** Checks; failures are kept, because the running code may handle errors itself. */
  watch(check: () => void): void {
    try {
      check();
    } catch (error) {
      this.fault(error);
    }
  }

  /** Something failed that no schedule explains. */
  fault(error: unknown): void {
    const failure = error instanceof Error ? error : new Error(String(error));
    this.failure ??= failure;
    if (!(failure instanceof Violation)) this.#note(`fault: ${failure.stack}`);
  }

  committed(transaction: Transaction, changes: readonly Change[]): void {
    this.counts.commits++;
    this.watch(() => {
      this.history.committed(changes);
      this.ledger.committed(transaction, changes);
    });
  }

  deadlock(circle: readonly Transaction[]): void {
    if (!circle.every(({ isLedgerBatch }) => isLedgerBatch)) return;
    this.watch(() => broken("order", "batches of the ledger wait for one another in a circle"));
  }

  answered(record: RequestRecord): void {
    this.watch(() => this.#answered(record));
  }

  delivered(record: RequestRecord, tokens: number): void {
    this.watch(() => this.#delivered(record, tokens));
  }

  failed(record: RequestRecord, error: GatewayError): void {
    this.watch(() => this.#failed(record, error));
  }

  #answered(record: RequestRecord): void {
    this.#note(`${record.plan.requestId} answered`);
    this.counts.answered++;
    record.end = { kind: "answered" };
    const usage = this.ledger.usageOf(record.plan.requestId);
    if (usage === undefined) {
      broken("M4", `${record.plan.requestId} is answered before its charge is durable`);
    }
    if (-usage.amount_nano !== record.chargeNano) {
      broken(
        "M4",
        `${record.plan.requestId} is charged ${-usage.amount_nano}, not ${record.chargeNano}`,
      );
    }
    const { isOwn, isStream } = record.plan;
    if (isOwn !== (usage.budget_nano !== null)) {
      broken("M4", `${record.plan.requestId} counts ${usage.budget_nano} of budgets`);
    }
    if (isOwn && isStream && countedOf(usage) < BigInt(record.deliveredTokens)) {
      broken("M4", `${record.plan.requestId} counts less of budgets than was delivered`);
    }
  }

  #delivered(record: RequestRecord, tokens: number): void {
    this.#note(`${record.plan.requestId} delivered ${tokens}`);
    this.counts.delivered++;
    const nowMs = this.#nowMs();
    const { requestId } = record.plan;
    const covered = this.#coveredTokens(record);
    if (covered === undefined) {
      broken("M4", `of ${requestId} something is delivered before a checkpoint is durable`);
    }
    record.deliveries.push({ atMs: nowMs, tokens });
    record.deliveredTokens = tokens;
    const ahead = record.deliveries.find((delivery) => delivery.tokens > covered);
    if (tokens - covered > MAX_AHEAD_TOKENS) {
      broken("M4", `${requestId} is ${tokens - covered} tokens ahead of its checkpoint`);
    }
    if (ahead !== undefined && nowMs - ahead.atMs > MAX_AHEAD_MS) {
      broken("M4", `${requestId} is ${nowMs - ahead.atMs} ms ahead of its checkpoint`);
    }
  }

  /** What is billed in every case: by a checkpoint, or where another instance has charged it already. */
  #coveredTokens({ plan }: RequestRecord): number | undefined {
    const attempt = this.#context.tables.attempts.read(undefined, plan.requestId);
    if (attempt !== undefined) return attempt.completion_tokens;
    const usage = this.ledger.usageOf(plan.requestId);
    return usage && Number(countedOf(usage)) - plan.fixedNano;
  }

  #failed(record: RequestRecord, error: GatewayError): void {
    this.#note(`${record.plan.requestId} failed: ${error.code}`);
    this.counts.failed++;
    record.end = { kind: "failed", code: error.code };
    if (error.code === "insufficient_credits" || error.code === "budget_exhausted") {
      this.counts.refused++;
      this.#refused(record);
    }
  }

  /** M5: at some moment the money was not there; and where only holds took it, the request has waited. */
  #refused({ plan, arrivedMs, hasHoldsInMemory }: RequestRecord): void {
    const tokens = plan.isLimitExplicit ? plan.outputTokens : Math.min(256, plan.outputTokens);
    const need = BigInt(plan.fixedNano + tokens);
    const paysNothing = plan.isOwn && !plan.hasFallback;
    const organizationId = paysNothing ? undefined : plan.organizationId;
    const spenders = [plan.keyId, ...plan.subjects];
    const least = this.history.leastSince(organizationId, spenders, arrivedMs);
    if (least.availableNano >= need && !hasHoldsInMemory()) {
      broken(
        "M5",
        `${plan.requestId} needs ${need} and is refused while ${least.availableNano} is free`,
      );
    }
    if (least.remainingNano >= need && this.#nowMs() - arrivedMs < MAX_WAIT_MS) {
      broken("M5", `${plan.requestId} is short of what is held only, and did not wait for it`);
    }
  }

  /** What must hold once everything has come to rest. */
  atRest(records: Iterable<RequestRecord>): void {
    this.watch(() => {
      this.ledger.atRest();
      for (const record of records) this.#ended(record);
    });
  }

  #ended(record: RequestRecord): void {
    const { requestId } = record.plan;
    if (record.end === undefined && !record.isLost) broken("M3", `${requestId} never ended`);
    const usage = this.ledger.usageOf(requestId);
    const refunded = this.ledger.refundedOf(requestId);
    if (record.hasFirstByte) {
      if (usage === undefined) broken("M4", `${requestId} was delivered and not charged`);
      const leastNano = BigInt(record.deliveredTokens - MAX_AHEAD_TOKENS);
      if (countedOf(usage) < leastNano) broken("M4", `${requestId} is billed for too little`);
    }
    if (usage !== undefined && -usage.amount_nano > (record.holdNano ?? 0n)) {
      broken("M1", `${requestId} is charged more than was held for it`);
    }
    const { holdNano = 0n, budgetHoldNano = holdNano } = record;
    if (usage !== undefined && countedOf(usage) > budgetHoldNano) {
      broken("M1", `${requestId} counts more of budgets than was held for it`);
    }
    const isFailed = record.end?.kind === "failed" && !record.isDisconnected;
    // The refund of a charge that came too late is owed by its instance, and dies with it.
    if (isFailed && !record.hasFirstByte && !record.hasDied && usage !== undefined) {
      if (countedOf(usage) > 0n && refunded !== -usage.amount_nano) {
        broken("M4", `${requestId} was told a failure and is charged ${-usage.amount_nano}`);
      }
    } else if (refunded !== undefined && record.end?.kind === "answered") {
      broken("M4", `${requestId} was answered and is refunded`);
    }
  }
}

/** What the budgets of the key count: the charge, or, of an own provider key, the list price. */
function countedOf({ budget_nano, amount_nano }: TransactionRow): bigint {
  return budget_nano ?? -amount_nano;
}
