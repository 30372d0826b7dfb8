import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type {
  ChargeFigures,
  MoneyPort,
  SettlementFigures,
} from "../../billing/ledger/interface.ts";
import { chargeableNano, feeOfCharge } from "../../billing/ledger/pending-charge.ts";
import { providerCostFemto, toolCostFemto, usageFigures } from "../../billing/ledger/usage.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { minus, plus } from "../../lib/exact-integer.ts";
import { chargeNanoUsd, higher, holdNanoUsd, usdNumber } from "../../lib/money.ts";
import type { RequestLog } from "../../lib/request-log.ts";
import { traced } from "../../lib/trace.ts";
import type { Usage } from "../../lib/usage.ts";
import type { AdmittedCall } from "./call.ts";
import { bothEffects, type ChargeEvents } from "./completion-events.ts";
import type { AcceptedRequest, StepBound } from "./endpoint.ts";
import { type Idempotency, MAX_STORED_RESULT_BYTES } from "./idempotency/idempotency.ts";
import type { Candidate } from "./routing/plan-route.ts";

/** The maximum of the database column. */
const MAX_LATENCY_MS = 2 ** 31 - 1;

/** The current figures of a call. The end of the call adds the status. */
export interface MeteredFigures extends ChargeFigures {
  status: number;
  details: Record<string, unknown> | null;
}

export interface ChargeDependencies {
  readonly money: MoneyPort;
  readonly events?: ChargeEvents | undefined;
  readonly idempotency: Idempotency;
}

/** A charge that the caller writes. */
export interface UnwrittenCharge {
  readonly figures: SettlementFigures;
  /** The event that is written together with the charge. */
  readonly event: StatementEffect | undefined;
  /** Called by the caller after both are written. */
  onWritten(): void;
}

/** A response that is stored under its idempotency key, together with the charge. */
export interface StoredIdempotentResult {
  readonly claim: IdempotencyClaim;
  readonly headers: Record<string, string>;
  /** The body of the response. Null if it is too large to be stored. */
  readonly body: Uint8Array | null;
  /** True if nothing of the response has been sent. If the claim has been lost, nothing is charged then. */
  readonly isClaimNeeded: boolean;
}

/**
 * The charge of one call: cost of the usage with the serving candidate's fee, checkpoints while it grows, and
 * settlement together with its event.
 */
export class CallCharge {
  readonly #dependencies: ChargeDependencies;
  readonly #call: AdmittedCall<AcceptedRequest>;

  constructor(dependencies: ChargeDependencies, call: AdmittedCall<AcceptedRequest>) {
    this.#dependencies = dependencies;
    this.#call = call;
  }

  /** Returns the charge for the usage: provider cost and fee, at most the hold. */
  figures(candidate: Candidate, usage: Usage, latencyMs: number): MeteredFigures {
    const { hold, fees, title, details, cacheWriter } = this.#call;
    const { model, terms, providerId, byokKeyId, toolPrices } = candidate;
    const costFemto = providerCostFemto(usage, terms.prices);
    const isByok = byokKeyId !== undefined;
    // The provider bills the organization directly. The gateway charges nothing for the tokens, but the
    // key's budgets can count them.
    const toolsFemto = isByok ? toolCostFemto(usage, toolPrices) : 0;
    const listNano = isByok ? chargeNanoUsd(minus(costFemto, toolsFemto), 0n) : 0n;
    const fullNano = isByok
      ? chargeNanoUsd(toolsFemto, fees.highest)
      : chargeNanoUsd(costFemto, fees.of(candidate));
    const chargeNano = atMost(chargeableNano(hold), fullNano);
    const counts = isByok && hold.budgetNano !== undefined;
    const spentNano = counts ? listNano + fullNano : 0n;
    const costNano = chargeNanoUsd(isByok ? toolsFemto : costFemto, 0n);
    const budgetNano = counts ? atMost(hold.budgetNano, spentNano) : undefined;
    const figures = {
      chargeNano,
      budgetNano,
      feeNano: feeOfCharge(chargeNano, costNano),
      clampedNano: budgetNano === undefined ? fullNano - chargeNano : spentNano - budgetNano,
      model: model.id,
      provider: providerId,
      ...usageFigures(usage),
      latencyMs: Math.min(Math.max(0, Math.round(latencyMs)), MAX_LATENCY_MS),
      details: {
        ...details,
        ...(isByok && byokDetails(byokKeyId, listNano)),
        price_source: terms.priceSource ?? "built_in",
      },
      status: 0,
      description: descriptionOf(title, model),
    };
    cacheWriter?.note(hold, figures, usage);
    return figures;
  }

  /**
   * Resolves with true if the hold covers another step in addition to the usage so far. Extends the hold if
   * necessary. Resolves with false if the organization lacks the money, or the key the tokens in its rate
   * limit.
   */
  async cover(candidate: Candidate, usage: Usage, step: StepBound): Promise<boolean> {
    const { costFemto: moreFemto, toolsFemto = 0, tokens: moreTokens } = step;
    const { hold, fees, tokens } = this.#call;
    if (tokens !== undefined && moreTokens !== undefined) {
      const used = usage.promptTokens + usage.completionTokens;
      if (!(await tokens.reserveStep(used, moreTokens))) return false;
    }
    const { byokKeyId, terms, toolPrices } = candidate;
    const costFemto = plus(providerCostFemto(usage, terms.prices), moreFemto);
    let moreNano: bigint;
    if (byokKeyId === undefined) {
      moreNano = holdNanoUsd(costFemto, fees.of(candidate)) - chargeableNano(hold);
    } else {
      // The provider bills the organization for the rest, which the key's budgets can count.
      const allToolsFemto = plus(toolCostFemto(usage, toolPrices), toolsFemto);
      const toolsNano = holdNanoUsd(allToolsFemto, fees.highest);
      const listNano = holdNanoUsd(minus(costFemto, allToolsFemto), 0n);
      const spentNano = listNano + toolsNano;
      const { budgetNano = spentNano } = hold;
      moreNano = higher(toolsNano - chargeableNano(hold), spentNano - budgetNano);
    }
    return moreNano <= 0n || this.#dependencies.money.extend(hold, moreNano);
  }

  /** Records the model, the usage and the charge for the log line and the metrics of the request. */
  note(figures: ChargeFigures): void {
    const { log } = this.#call;
    log.model = figures.model;
    log.provider = figures.provider;
    log.promptTokens = figures.promptTokens;
    log.completionTokens = figures.completionTokens;
    log.costNano = figures.chargeNano;
  }

  /** Resolves when the charge for the bytes that are about to be delivered is durable. */
  checkpoint(figures: ChargeFigures): Promise<void> {
    return this.#dependencies.money.checkpoint(this.#call.hold, figures);
  }

  /**
   * Resolves when the charge is durable, together with its event and the stored answer.
   *
   * @param errorCode set if the request failed although part of its answer is charged
   *
   * @param also the effect that makes the endpoint's stored answer visible
   */
  settle(
    figures: MeteredFigures,
    status: 200 | 400 | 499,
    errorCode: string | undefined,
    storable?: StoredIdempotentResult,
    also?: StatementEffect,
  ): Promise<void> {
    if (storable?.claim.storeLargeResult !== undefined && isTooLarge(storable.body)) {
      const { claim, body } = storable;
      const small = { ...storable, body: null };
      const storing = claim.storeLargeResult!(body);
      return storing.then(() => this.settle(figures, status, errorCode, small, also));
    }
    const { money, idempotency } = this.#dependencies;
    addHistory(figures, this.#call.log);
    const settled = withStatus(figures, status);
    this.#call.tokens?.end(figures.promptTokens + figures.completionTokens);
    const result =
      storable &&
      idempotency.storeEffect(storable.claim, 200, storable.headers, storable.body, storable);
    const stored = bothEffects(result, also);
    const event = this.#eventOf(settled, errorCode);
    return traced(
      this.#call.log.trace,
      "settle",
      event === undefined
        ? money.settle(this.#call.hold, settled, stored)
        : this.#settleWithEvent(settled, stored, event),
    );
  }

  #eventOf(settled: SettlementFigures, errorCode?: string) {
    const { hold, route } = this.#call;
    return this.#dependencies.events?.ofCharge({ hold, route }, settled, errorCode);
  }

  /** Returns a charge that the caller writes. */
  async toSettle(settled: SettlementFigures): Promise<UnwrittenCharge> {
    const event = await this.#eventOf(settled);
    const onWritten = () => {
      if (event !== undefined) this.#dependencies.events!.noteWritten();
    };
    return { figures: settled, event, onWritten };
  }

  async #settleWithEvent(
    settled: SettlementFigures,
    stored: StatementEffect | undefined,
    pendingEvent: StatementEffect | Promise<StatementEffect | undefined>,
  ): Promise<void> {
    const { money, events } = this.#dependencies;
    const event = await pendingEvent;
    await money.settle(this.#call.hold, settled, bothEffects(stored, event));
    if (event !== undefined) events!.noteWritten();
  }

  /** Settles a call that has checkpoints but delivered nothing. `figures` contain no usage. */
  settleAtZero(figures: MeteredFigures): Promise<void> {
    this.#call.tokens?.end(0);
    return this.#dependencies.money.settle(this.#call.hold, withStatus(figures, 408));
  }

  /** Releases the hold. Changes nothing if a charge or a checkpoint is pending or durable. */
  release(): void {
    this.#call.tokens?.end(0);
    this.#dependencies.money.release(this.#call.hold);
  }
}

/** Returns details of a BYOK call: the key, and the provider's bill to the organization at list prices. */
function byokDetails(byokKeyId: string, listNano: bigint): Record<string, unknown> {
  return { provider_key_id: byokKeyId, list_price_usd: usdNumber(listNano) };
}

function atMost(heldNano: bigint, nano: bigint): bigint {
  return nano > heldNano ? heldNano : nano;
}

function isTooLarge(body: Uint8Array | null): body is Uint8Array {
  return body !== null && body.byteLength > MAX_STORED_RESULT_BYTES;
}

/** Shorter waits are not recorded. */
const MIN_QUEUED_MS = 20;

/** Adds the time to the first token, the wait and the routing to the details, if there are any. */
function addHistory(
  figures: MeteredFigures,
  { firstTokenMs, queuedMs = 0, routing }: RequestLog,
): void {
  const hasQueued = queuedMs >= MIN_QUEUED_MS;
  if (firstTokenMs === undefined && !hasQueued && routing === undefined) return;
  const details: Record<string, unknown> = { ...figures.details };
  if (firstTokenMs !== undefined) details.first_token_ms = Math.round(firstTokenMs);
  if (hasQueued) details.queue_ms = Math.round(queuedMs);
  if (routing !== undefined) details.routing = routing;
  figures.details = details;
}

/** Changes the figures in place, so that a settlement copies nothing. */
function withStatus(figures: MeteredFigures, status: 200 | 400 | 408 | 499): SettlementFigures {
  figures.status = status;
  return figures;
}

const DESCRIPTIONS = new WeakMap<CatalogueModel, { title: string; text: string }>();

/**
 * Returns the same string object for all charges of a model and title, so that the ledger's comparison of
 * neighbouring charges is cheap.
 */
function descriptionOf(title: string, model: CatalogueModel): string {
  let description = DESCRIPTIONS.get(model);
  if (description?.title !== title) {
    description = { title, text: `${title}: ${model.id}` };
    DESCRIPTIONS.set(model, description);
  }
  return description.text;
}
