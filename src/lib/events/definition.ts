import type { Static, TSchema } from "typebox";

/*
 * Defines the events that webhooks deliver (spec 6.1). An event has a file here with its payload and sample, and
 * a line in event-types.ts. The code that changes the database builds the event and writes it in the same
 * transaction (db/queries/outbox.ts). The ledger's SQL functions write the events of budgets and of a low balance
 * with the payload that is defined here.
 */

/** An event for the outbox. */
export interface BuiltEvent<Type extends string, Data> {
  /** A stable id, so that receivers can recognise a repeated delivery. */
  readonly eventId: string;
  readonly organizationId: string;
  readonly type: Type;
  readonly data: Data;
}

export interface EventDefinition<Type extends string = string, Payload extends TSchema = TSchema> {
  readonly type: Type;
  /** The event's description in the API documentation. */
  readonly summary: string;
  readonly payload: Payload;
  /** The data of a test delivery, without `test: true`. */
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
