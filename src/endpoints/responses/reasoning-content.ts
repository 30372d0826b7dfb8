import { isFields, jsonValue } from "../../lib/json.ts";
import type { ReasoningDetail } from "../../providers/interface.ts";

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

/**
 * Joins the pieces of details that a stream brings: those of the same place, type and id are one. A signature
 * ends its detail where details have no place.
 */
export function addDetail(details: ReasoningDetail[], piece: ReasoningDetail): void {
  const last = details.at(-1);
  if (last === undefined || !continues(last, piece)) {
    details.push({ ...piece });
    return;
  }
  const joined: Record<string, unknown> = Object.assign(last, { ...last, ...withoutText(piece) });
  for (const name of ["text", "summary", "data"]) {
    const more = (piece as Fields)[name];
    if (typeof more === "string") joined[name] = `${joined[name] ?? ""}${more}`;
  }
}

function continues(last: ReasoningDetail, piece: ReasoningDetail): boolean {
  if (last.type !== piece.type || last.index !== piece.index || last.id !== piece.id) return false;
  if (last.type === "reasoning.encrypted" || partOf(last) !== partOf(piece)) return false;
  const isSigned = last.type === "reasoning.text" && last.signature !== undefined;
  return !isSigned || piece.index !== undefined;
}

/** Of a summary in several parts, which one. */
export function partOf(detail: ReasoningDetail): number {
  return detail.type === "reasoning.summary" ? (detail.part ?? 0) : 0;
}

function withoutText(piece: ReasoningDetail): Fields {
  const { text: _text, summary: _summary, data: _data, ...rest } = piece as Fields;
  return rest;
}
