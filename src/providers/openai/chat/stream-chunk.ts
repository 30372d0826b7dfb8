import { textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import { ProviderFailure } from "../../interface.ts";

export function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

export function bringsNothing(delta: Readonly<Record<string, unknown>>): boolean {
  for (const field in delta) {
    const value = delta[field];
    if (value === null || value === "" || (Array.isArray(value) && value.length === 0)) continue;
    return false;
  }
  return true;
}

export function parseChunk(data: string): Record<string, unknown> {
  let chunk: unknown;
  try {
    chunk = JSON.parse(textOfLatin1(data));
  } catch {
    // The error of the parser quotes what it stumbled over.
    throw new ProviderFailure(
      "unavailable",
      "the provider's stream holds something that is no JSON",
    );
  }
  if (!isFields(chunk)) {
    throw new ProviderFailure(
      "unavailable",
      "the provider's stream holds something that is no chunk",
    );
  }
  return chunk;
}

export function tellsError({ error, object }: Readonly<Record<string, unknown>>): boolean {
  return (Boolean(error) && !isEmptyError(error)) || object === "error";
}

/** Some providers send an empty error beside every answer. */
export function isEmptyError(error: unknown): boolean {
  return isFields(error) && Object.keys(error).length === 0;
}
