import { isFields, jsonValue } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../../providers/interface.ts";

/**
 * The `encrypted_content` of a reasoning item, which lets a model continue its reasoning. It contains the
 * details that the chat call returns in `reasoning_details`. They are not secret, so the content is marked
 * and encoded, not encrypted. Clients return it unchanged, and it stays readable when the master key is
 * replaced.
 */
const MARK = "gateway-reasoning:";

type Fields = Readonly<Record<string, unknown>>;

/** Returns the content, or undefined if there are no details. The item itself contains the text. */
export function encryptedContent(details: readonly ReasoningDetail[]): string | undefined {
  if (details.length === 0) return undefined;
  return MARK + Buffer.from(JSON.stringify(details)).toString("base64");
}

/**
 * Returns the details, or undefined if another gateway or a provider made the content, or a client has
 * shortened it.
 */
export function detailsIn(content: unknown): readonly Fields[] | undefined {
  if (typeof content !== "string" || !content.startsWith(MARK)) return undefined;
  const details = jsonValue(Buffer.from(content.slice(MARK.length), "base64").toString("utf8"));
  return Array.isArray(details) && details.every(isFields) ? details : undefined;
}
