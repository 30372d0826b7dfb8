import type { Database } from "../../../db/client.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { type OutboxEvent, outboxEffect } from "../../../db/queries/outbox.ts";
import { subscribedTypes } from "../../../db/queries/webhooks.ts";
import type { Hold, SettlementFigures } from "../../billing/ledger/interface.ts";
import { completionError } from "../../lib/events/completion-error.ts";
import { completionSuccess } from "../../lib/events/completion-success.ts";
import { ALL_EVENTS, EVENT_TYPES, type EventType } from "../../lib/events/event-types.ts";
import { guardrailTriggered } from "../../lib/events/guardrail-triggered.ts";
import { newId } from "../../lib/ids.ts";
import { usdNumber } from "../../lib/money.ts";
import { OrganizationCache } from "../../lib/organization-cache.ts";
import type { GuardrailHit } from "../../lib/request-log.ts";
import type { RequestRecord } from "../../platform/telemetry/interface.ts";

/** The call that a charge is for. */
export interface ChargedCall {
  readonly hold: Hold;
  /** Method and path of the endpoint. */
  readonly route: string;
}

/** Builds the event that reports a charge. It is written with the charge. */
export interface ChargeEvents {
  /**
   * Returns undefined if no webhook subscribes to the event.
   *
   * @param errorCode set if the request failed although part of its answer is charged
   */
  ofCharge(
    call: ChargedCall,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): StatementEffect | undefined | Promise<StatementEffect | undefined>;
  /** Reports that a charge was written with its event. */
  noteWritten(): void;
}

/** Returns an effect that runs both. Returns undefined if both are undefined. */
export function bothEffects(
  first: StatementEffect | undefined,
  second: StatementEffect | undefined,
): StatementEffect | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  return {
    kind: "statement",
    name: `${first.name}, ${second.name}`,
    tables: [...first.tables, ...second.tables],
    events: [...first.events, ...second.events],
    async run(sql) {
      await first.run(sql);
      await second.run(sql);
    },
    storesAnswer: () => first.storesAnswer?.() === true || second.storesAnswer?.() === true,
  };
}

interface CompletionEventsDependencies {
  readonly subscriptions: Subscriptions;
  /** The share of successful completions that are reported, 0 to 1. */
  readonly successSample: number;
  random(): number;
  /** Returns the status and the type of an error code. */
  errorEntry(code: string): { readonly status: number; readonly type: string };
  /** Writes an event that belongs to no charge. */
  write(event: OutboxEvent): void;
  /** Reports that events were written with charges. The database sends no notification for these. */
  onWritten(): void;
}

/**
 * Emits completion.success and completion.error (spec 6.1). If a request is charged, the event is written
 * with the charge. All other events are written separately. Each request has one event, whose id is derived
 * from the request id.
 */
export class CompletionEvents implements ChargeEvents {
  readonly #dependencies: CompletionEventsDependencies;

  constructor(dependencies: CompletionEventsDependencies) {
    this.#dependencies = dependencies;
  }

  ofCharge(
    call: ChargedCall,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): StatementEffect | undefined | Promise<StatementEffect | undefined> {
    const { successSample, random } = this.#dependencies;
    if (errorCode === undefined && random() >= successSample) return undefined;
    return this.#eventOfCharge(call, figures, errorCode);
  }

  #eventOfCharge(
    call: ChargedCall,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): StatementEffect | undefined | Promise<StatementEffect | undefined> {
    const type = errorCode === undefined ? "completion.success" : "completion.error";
    const wanted = this.#dependencies.subscriptions.wants(call.hold.organizationId, type);
    const effect = (isWanted: boolean) =>
      isWanted ? outboxEffect(this.#chargeEvent(call, figures, errorCode)) : undefined;
    return wanted instanceof Promise ? wanted.then(effect) : effect(wanted);
  }

  noteWritten(): void {
    this.#dependencies.onWritten();
  }

  /**
   * Receives every request after it has ended. Emits the event of a request that failed at a billed endpoint.
   *
   * @param isBilled true if the request's endpoint is billed
   */
  noteFinished(request: RequestRecord, isBilled: boolean): void {
    const { status, errorCode, organizationId } = request;
    if (request.guardrailHits !== undefined) this.#noteGuardrail(request, request.guardrailHits);
    if (status < 400 && errorCode === undefined) return;
    if (!isBilled || organizationId === undefined) return;
    const { subscriptions, write } = this.#dependencies;
    const emit = (isWanted: boolean) => {
      if (isWanted) write(this.#failureEvent(request, organizationId, errorCode ?? "internal"));
    };
    const wanted = subscriptions.wants(organizationId, "completion.error");
    if (wanted instanceof Promise) void wanted.then(emit);
    else emit(wanted);
  }

  /** Emits one event for a request: for the hit that blocked it, or else for the first redaction. */
  #noteGuardrail(request: RequestRecord, hits: readonly GuardrailHit[]): void {
    const { requestId, organizationId, keyId } = request;
    const hit = hits.find(({ action }) => action === "block") ?? hits[0];
    if (hit === undefined || organizationId === undefined) return;
    const { guardrail, type, action, direction } = hit;
    const { subscriptions, write } = this.#dependencies;
    const emit = (isWanted: boolean) => {
      if (!isWanted) return;
      const rules = [...new Set(hits.map(({ type }) => type))];
      const trigger = { guardrail, rule: type, rules, action, direction };
      const data = { request_id: requestId, key_id: keyId!, ...trigger };
      write(guardrailTriggered.build(newId("evt"), organizationId, data));
    };
    const wanted = subscriptions.wants(organizationId, "guardrail.triggered");
    if (wanted instanceof Promise) void wanted.then(emit);
    else emit(wanted);
  }

  #chargeEvent(
    { hold, route }: ChargedCall,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): OutboxEvent {
    const { requestId, organizationId } = hold;
    const common = {
      request_id: requestId,
      key_id: hold.keyId,
      endpoint: route.slice(route.indexOf("/")),
      model: figures.model,
      provider: figures.provider,
      usage: usageOf(figures.promptTokens, figures.completionTokens),
      cost_usd: usdNumber(figures.chargeNano),
      latency_ms: figures.latencyMs,
    };
    const eventId = eventIdOf(requestId);
    return errorCode === undefined
      ? completionSuccess.build(eventId, organizationId, { ...common, status: 200 })
      : completionError.build(eventId, organizationId, { ...common, ...this.#error(errorCode) });
  }

  #failureEvent(request: RequestRecord, organizationId: string, errorCode: string): OutboxEvent {
    const { promptTokens, completionTokens } = request;
    return completionError.build(eventIdOf(request.requestId), organizationId, {
      request_id: request.requestId,
      // Every request of an organization was made with an API key.
      key_id: request.keyId!,
      endpoint: request.route,
      model: request.model ?? null,
      provider: request.provider ?? null,
      usage: promptTokens === undefined ? null : usageOf(promptTokens, completionTokens ?? 0),
      cost_usd: usdNumber(request.costNano ?? 0n),
      latency_ms: Math.round(request.latencyMs),
      ...this.#error(errorCode),
    });
  }

  #error(code: string) {
    const { status, type } = this.#dependencies.errorEntry(code);
    return { status, error: { type, code } };
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

const MAX_ORGANIZATIONS = 50_000;
const ALL_TYPES: ReadonlySet<string> = new Set(EVENT_TYPES);

/**
 * The event types that the webhooks of each organization subscribe to, so that no event is emitted without a
 * receiver.
 */
export class Subscriptions extends OrganizationCache<ReadonlySet<string>> {
  constructor(sql: Database) {
    super(MAX_ORGANIZATIONS, async (organizationId) => {
      const types = await subscribedTypes(sql, organizationId);
      return types.includes(ALL_EVENTS) ? ALL_TYPES : new Set(types);
    });
  }

  /**
   * Returns true if a webhook subscribes to the type. Returns without a promise if the types are cached,
   * which they are after an organization's first request.
   */
  wants(organizationId: string, type: EventType): boolean | Promise<boolean> {
    const types = this.of(organizationId);
    if (!(types instanceof Promise)) return types.has(type);
    // An event without a subscriber does no harm.
    return types.then(
      (read) => read.has(type),
      () => true,
    );
  }
}
