import { textOfLatin1 } from "../../lib/event-splitter.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

/**
 * The object in the data of a stream's event, whose characters are bytes of UTF-8. Throws ProviderFailure for
 * what is none.
 */
export function eventOf(data: string): Record<string, unknown> {
  const event = jsonValue(textOfLatin1(data));
  if (isFields(event)) return event;
  throw new ProviderFailure("unavailable", "the provider's stream holds what is no event");
}
