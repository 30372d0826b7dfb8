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
import type { GuardrailHit } from "../../lib/request-facts.ts";
import type { RequestRecord } from "../../platform/telemetry/interface.ts";

/** What a charge is for. */
export interface ChargedCall {
  readonly hold: Hold;
  /** Method and path of its endpoint. */
  readonly route: string;
}

/** The event that a charge is reported by, written with it. */
export interface ChargeEvents {
  /**
   * Undefined if no webhook subscribes to it.
   * @param errorCode set where the request failed although something of its answer is charged
   */
  ofCharge(
    call: ChargedCall,
    figures: SettlementFigures,
    errorCode: string | undefined,
  ): StatementEffect | undefined | Promise<StatementEffect | undefined>;
  /** A charge was written with its event. */
  noteWritten(): void;
}

/** Both written together; undefined where there is neither. */
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
  /** Share of successful completions that are reported, 0 to 1. */
  readonly successSample: number;
  random(): number;
  /** The status and the type of an error code. */
  errorEntry(code: string): { readonly status: number; readonly type: string };
  /** Writes an event that no charge goes with. */
  write(event: OutboxEvent): void;
  /** Events were written with charges, which the database does not notify. */
  onWritten(): void;
}

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
   * Receives every request when it has ended, and emits the event of one that failed at a billed endpoint.
   * @param isBilled whether its endpoint is one
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

  /** One event for a request, of what blocked it, or of what was redacted first. */
  #noteGuardrail(request: RequestRecord, hits: readonly GuardrailHit[]): void {
    const { requestId, organizationId, keyId } = request;
    const hit = hits.find(({ action }) => action === "block") ?? hits[0];
    if (hit === undefined || organizationId === undefined) return;
    const { guardrail, type, action, direction } = hit;
    const { subscriptions, write } = this.#dependencies;
    const emit = (isWanted: boolean) => {
      if (!isWanted) return;
      const rules = [...new Set(hits.map((one) => one.type))];
      const said = { guardrail, rule: type, rules, action, direction };
      const data = { request_id: requestId, key_id: keyId!, ...said };
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
      // Every request of an organization was made with one of its keys.
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

/** Which event types the webhooks of each organization subscribe to, so that no event is emitted without a receiver. */
export class Subscriptions {
  readonly #types: OrganizationCache<ReadonlySet<string>>;

  constructor(sql: Database) {
    this.#types = new OrganizationCache(MAX_ORGANIZATIONS, async (organizationId) => {
      const types = await subscribedTypes(sql, organizationId);
      return types.includes(ALL_EVENTS) ? ALL_TYPES : new Set(types);
    });
  }

  /** At once where it is known, which it is but for an organization's first time. */
  wants(organizationId: string, type: EventType): boolean | Promise<boolean> {
    const types = this.#types.of(organizationId);
    if (!(types instanceof Promise)) return types.has(type);
    // An event without a subscriber does no harm.
    return types.then(
      (read) => read.has(type),
      () => true,
    );
  }

  /** They may have changed. */
  forget(organizationId: string): void {
    this.#types.forget(organizationId);
  }

  forgetAll(): void {
    this.#types.forgetAll();
  }
}
