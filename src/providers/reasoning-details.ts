import type { ReasoningDetail } from "./interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Appends a piece of reasoning details from a stream. Pieces with the same index, type and id form one detail. If
 * details have no index, a signature ends a detail.
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

/** Returns the index of a part within a summary. */
export function partOf(detail: ReasoningDetail): number {
  return detail.type === "reasoning.summary" ? (detail.part ?? 0) : 0;
}

function withoutText(piece: ReasoningDetail): Fields {
  const { text: _text, summary: _summary, data: _data, ...rest } = piece as Fields;
  return rest;
}
