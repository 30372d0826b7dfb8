import type { Static, TSchema } from "typebox";

/*
 * An event that webhooks deliver (spec 6.1) takes two files: its own here (payload, sample; the builder comes
 * with defineEvent) and a line of event-types.ts. Whatever changes the database builds the event and writes it
 * in the same transaction (db/queries/outbox.ts). Events of budgets and of a low balance are written by the
 * ledger's SQL functions; their payload here is what those functions promise.
 */

/** As the outbox takes it. */
export interface BuiltEvent<Type extends string, Data> {
  /** Stable, so that receivers can recognise a repeated delivery. */
  readonly eventId: string;
  readonly organizationId: string;
  readonly type: Type;
  readonly data: Data;
}

export interface EventDefinition<Type extends string = string, Payload extends TSchema = TSchema> {
  readonly type: Type;
  /** One sentence for the description of the API. */
  readonly summary: string;
  readonly payload: Payload;
  /** What a test delivery carries besides `test: true`. */
  readonly sample: Static<Payload>;
}

interface BuildableEvent<Type extends string, Payload extends TSchema>
  extends EventDefinition<Type, Payload> {
  build(
    eventId: string,
    organizationId: string,
    data: Static<Payload>,
  ): BuiltEvent<Type, Static<Payload>>;
}

export function defineEvent<const Type extends string, Payload extends TSchema>(
  definition: EventDefinition<Type, Payload>,
): BuildableEvent<Type, Payload> {
  const { type } = definition;
  return {
    ...definition,
    build: (eventId, organizationId, data) => ({ eventId, organizationId, type, data }),
  };
}
