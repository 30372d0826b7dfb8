import { Compile } from "typebox/schema";
import { EVENT_DEFINITIONS, type EventType } from "../../src/lib/events/event-types.ts";

const validators = new Map(
  [...EVENT_DEFINITIONS].map(([type, { payload }]) => [type, Compile(payload)]),
);

/** What keeps the data from being of the event's type; empty where nothing does. */
export function payloadFaults(type: string, data: unknown): unknown[] {
  const validator = validators.get(type as EventType);
  if (validator === undefined) return [`unknown event type ${type}`];
  if (validator.Check(data)) return [];
  const [, errors] = validator.Errors(data);
  return errors.map(({ instancePath, message }) => ({ type, data, instancePath, message }));
}
