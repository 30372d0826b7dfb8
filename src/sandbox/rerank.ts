import type { Ranking, RerankCall } from "../providers/interface.ts";
import { unknownModel } from "./drills.ts";
import { sandboxEmbed } from "./embeddings.ts";

const MODEL = "rerank";
const DOCUMENTS_A_UNIT = 100;

/**
 * Returns deterministic scores from 0 to 1: the similarity of the sandbox's embeddings of the query and a
 * document.
 */
export async function sandboxRerank(call: RerankCall): Promise<Ranking> {
  const name = call.model.replace(/^sandbox\//, "");
  if (name !== MODEL) throw unknownModel(name, "rerank");
  const { query, documents } = call;
  // A document can be empty, but an empty text has no embedding.
  const inputs = [query, ...documents.map((text) => text || " ")];
  const { vectors, usage } = await sandboxEmbed({ ...call, model: "embed", inputs, fields: {} });
  const [queryVector, ...documentVectors] = vectors;
  return {
    scores: documentVectors.map((vector) =>
      Math.max(0, Math.min(1, product(queryVector!, vector))),
    ),
    promptTokens: usage?.promptTokens,
    searchUnits: Math.ceil(documents.length / DOCUMENTS_A_UNIT),
  };
}

function product(left: ArrayLike<number>, right: ArrayLike<number>): number {
  let sum = 0;
  for (let index = 0; index < left.length; index++) sum += left[index]! * right[index]!;
  return sum;
}
