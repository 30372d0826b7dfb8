import type { QuantisedVector } from "../../../db/queries/vector-store-vectors.ts";

const MOST_OF_A_BYTE = 127;

/** Returns the quantised form of an embedding of any length. */
export function quantised(embedding: ArrayLike<number>): QuantisedVector {
  const length = lengthOf(embedding);
  let most = 0;
  for (let at = 0; at < embedding.length; at++) most = Math.max(most, Math.abs(embedding[at]!));
  const bytes = new Int8Array(embedding.length);
  let signs = "";
  for (let at = 0; at < embedding.length; at++) {
    const value = embedding[at]!;
    signs += value > 0 ? "1" : "0";
    bytes[at] = most === 0 ? 0 : Math.round((value / most) * MOST_OF_A_BYTE);
  }
  const scale = length === 0 ? 0 : most / MOST_OF_A_BYTE / length;
  return { signs, bytes: new Uint8Array(bytes.buffer), scale };
}

/**
 * Returns the cosine of the angle to the embedding of a question. If that embedding is not normalized, the
 * value is scaled, and the order stays correct.
 */
export function nearness(
  question: ArrayLike<number>,
  { bytes, scale }: Pick<QuantisedVector, "bytes" | "scale">,
): number {
  const numbers = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let sum = 0;
  for (let at = 0; at < numbers.length; at++) sum += numbers[at]! * question[at]!;
  return sum * scale;
}

function lengthOf(embedding: ArrayLike<number>): number {
  let squares = 0;
  for (let at = 0; at < embedding.length; at++) squares += embedding[at]! * embedding[at]!;
  return Math.sqrt(squares);
}
