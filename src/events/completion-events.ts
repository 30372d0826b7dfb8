import type { StatementEffect } from "../../db/ledger/effects.ts";
import { type OutboxEvent, outboxEffect } from "../../db/queries/outbox.ts";
import { usdNumber } from "../lib/money.ts";
import type { Hold, SettlementFigures } from "../money/interface.ts";
import type { RequestRecord } from "../telemetry/interface.ts";
import type { ChargeEvents } from "./charge-events.ts";
import type { Subscriptions } from "./subscriptions.ts";

export interface CompletionEventsDependencies {
  readonly subscriptions: Subscriptions;
  /** Share of successful completions that are reported, 0 to 1. */
  readonly successSample: number;
  random(): number;
  /** The status and the type of an error code. */
  errorEntry(code: string): { readonly status: number; readonly type: string };
  /** Writes an event that no charge goes with. */
  write(event: OutboxEvent): void;
  /** Events were written with charges, of which the database tells nobody. */
  onWritten(): void;
}

const ROUTE = "/v1/chat/completions";

/**
 * completion.success and completion.error (spec 6.1). Where something is charged the event is
 * written with the charge; the others are written by themselves. A request has one event, whose id follows
 * from its own.
 */
export class CompletionEvents implements ChargeEvents {
  readonly #dependencies: CompletionEventsDependencies;

  constructor(dependencies: CompletionEventsDependencies) {
    this.#dependencies = dependencies;
  }

  ofCharge(
    hold: Hold,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): StatementEffect | undefined | Promise<StatementEffect | undefined> {
    const { successSample, random } = this.#dependencies;
    if (errorCode === undefined && random() >= successSample) return undefined;
    return this.#eventOfCharge(hold, figures, errorCode);
  }

  #eventOfCharge(
    hold: Hold,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): StatementEffect | undefined | Promise<StatementEffect | undefined> {
    const type = errorCode === undefined ? "completion.success" : "completion.error";
    const wanted = this.#dependencies.subscriptions.wants(hold.organizationId, type);
    const effect = (isWanted: boolean) =>
      isWanted ? outboxEffect(this.#chargeEvent(hold, figures, errorCode)) : undefined;
    return wanted instanceof Promise ? wanted.then(effect) : effect(wanted);
  }

  noteWritten(): void {
    this.#dependencies.onWritten();
  }

  /** Told of every request once it is over; those of chat completions that failed are reported. */
  noteFinished(request: RequestRecord): void {
    const { status, errorCode, organizationId } = request;
    if (status < 400 && errorCode === undefined) return;
    if (request.route !== ROUTE || request.method !== "POST" || organizationId === undefined)
      return;
    const { subscriptions, write } = this.#dependencies;
    const emit = (isWanted: boolean) => {
      if (isWanted) write(this.#failureEvent(request, organizationId, errorCode ?? "internal"));
    };
    const wanted = subscriptions.wants(organizationId, "completion.error");
    if (wanted instanceof Promise) void wanted.then(emit);
    else emit(wanted);
  }

  #chargeEvent(hold: Hold, figures: SettlementFigures, errorCode: string | undefined): OutboxEvent {
    return {
      eventId: eventIdOf(hold.requestId),
      organizationId: hold.organizationId,
      type: errorCode === undefined ? "completion.success" : "completion.error",
      data: {
        request_id: hold.requestId,
        key_id: hold.keyId,
        model: figures.model,
        provider: figures.provider,
        status: errorCode === undefined ? 200 : this.#dependencies.errorEntry(errorCode).status,
        usage: usageOf(figures.promptTokens, figures.completionTokens),
        cost_usd: usdNumber(figures.chargeNano),
        latency_ms: figures.latencyMs,
        ...(errorCode !== undefined && { error: this.#error(errorCode) }),
      },
    };
  }

  #failureEvent(request: RequestRecord, organizationId: string, errorCode: string): OutboxEvent {
    const { promptTokens, completionTokens } = request;
    return {
      eventId: eventIdOf(request.requestId),
      organizationId,
      type: "completion.error",
      data: {
        request_id: request.requestId,
        key_id: request.keyId,
        model: request.model ?? null,
        provider: request.provider ?? null,
        status: this.#dependencies.errorEntry(errorCode).status,
        usage: promptTokens === undefined ? null : usageOf(promptTokens, completionTokens ?? 0),
        cost_usd: usdNumber(request.costNano ?? 0n),
        latency_ms: Math.round(request.latencyMs),
        error: this.#error(errorCode),
      },
    };
  }

  #error(code: string) {
    return { type: this.#dependencies.errorEntry(code).type, code };
  }
}

function eventIdOf(requestId: string): string {
  return `evt_${requestId.slice(requestId.indexOf("_") + 1)}`;
}

function usageOf(promptTokens: number, completionTokens: number) {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  };
}
