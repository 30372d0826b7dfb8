import { isFields, jsonValue } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../../providers/interface.ts";

/**
 * What continues a model's reasoning, in the `encrypted_content` of a reasoning item. It holds the details that
 * the chat call gives its clients in the open (`reasoning_details`), so it is marked and encoded, not encrypted:
 * clients send it back unchanged, and it stays readable when the master key is replaced.
 */
const MARK = "gateway-reasoning:";

type Fields = Readonly<Record<string, unknown>>;

/** Undefined where nothing continues the reasoning but its text, which the item itself holds. */
export function encryptedContent(details: readonly ReasoningDetail[]): string | undefined {
  if (details.length === 0) return undefined;
  return MARK + Buffer.from(JSON.stringify(details)).toString("base64");
}

/** Undefined for what another gateway or a provider has encrypted, or a client has cut. */
export function detailsIn(content: unknown): readonly Fields[] | undefined {
  if (typeof content !== "string" || !content.startsWith(MARK)) return undefined;
  const details = jsonValue(Buffer.from(content.slice(MARK.length), "base64").toString("utf8"));
  return Array.isArray(details) && details.every(isFields) ? details : undefined;
}
