import { textOfLatin1 } from "../../lib/event-splitter.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

/**
 * Returns the JSON object in the data of a stream's event. The characters of `data` are UTF-8 bytes. Throws
 * ProviderFailure if there is no object.
 */
export function eventOf(data: string): Record<string, unknown> {
  const event = jsonValue(textOfLatin1(data));
  if (isFields(event)) return event;
  throw new ProviderFailure(
    "unavailable",
    "the provider's stream contains something that is not an event",
  );
}
