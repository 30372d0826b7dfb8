import type { Ranking, RerankCall } from "../providers/interface.ts";
import { unknownModel } from "./drills.ts";
import { sandboxEmbed } from "./embeddings.ts";

const MODEL = "rerank";
const DOCUMENTS_A_UNIT = 100;

/** Deterministic scores from 0 to 1: how near the sandbox's embeddings of the query and a document are. */
export async function sandboxRerank(call: RerankCall): Promise<Ranking> {
  const name = call.model.replace(/^sandbox\//, "");
  if (name !== MODEL) throw unknownModel(name, "rerank");
  const { query, documents } = call;
  // A document may be empty, which no embedding is of.
  const inputs = [query, ...documents.map((text) => text || " ")];
  const { vectors, usage } = await sandboxEmbed({ ...call, model: "embed", inputs, fields: {} });
  const [asked, ...found] = vectors;
  return {
    scores: found.map((vector) => Math.max(0, Math.min(1, product(asked!, vector)))),
    promptTokens: usage?.promptTokens,
    searchUnits: Math.ceil(documents.length / DOCUMENTS_A_UNIT),
  };
}

function product(one: ArrayLike<number>, other: ArrayLike<number>): number {
  let sum = 0;
  for (let at = 0; at < one.length; at++) sum += one[at]! * other[at]!;
  return sum;
}
