import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { reportedUsage } from "./reported-usage.ts";

/** Cohere's error message: "total number of texts must be at most 96". */
const MAX_BATCH = 96;

/** Posts a body with the given number of texts and reads the answer. Rejects with ProviderFailure. */
export type PostEmbeddings = (body: string, texts: number) => Promise<Embeddings>;

/**
 * Returns the embeddings of texts (https://docs.cohere.com/v2/reference/embed). Sends as many batches as
 * needed, one at a time. Cohere rejects texts that are too long and truncates them only if `truncate` says
 * so. Cohere requires `input_type`; the default is a document of a search. Usage is undefined unless each
 * batch reports it. Rejects with ProviderFailure.
 */
export async function cohereEmbeddings(
  { model, inputs, dimensions, fields }: EmbedCall,
  post: PostEmbeddings,
): Promise<Embeddings> {
  const { input_type: inputType = "search_document", truncate = "NONE", priority } = fields;
  const vectors: ArrayLike<number>[] = [];
  let usage: Usage | undefined;
  let isCounted = true;
  for (let start = 0; start < inputs.length; start += MAX_BATCH) {
    const texts = inputs.slice(start, start + MAX_BATCH).map(textOf);
    const body = {
      model,
      texts,
      input_type: inputType,
      embedding_types: ["float"],
      truncate,
      ...(dimensions !== undefined && { output_dimension: dimensions }),
      ...(priority !== undefined && { priority }),
    };
    const answer = await post(JSON.stringify(body), texts.length);
    vectors.push(...answer.vectors);
    isCounted &&= answer.usage !== undefined;
    if (answer.usage === undefined) continue;
    const promptTokens = answer.usage.promptTokens + (usage?.promptTokens ?? 0);
    usage = { ...answer.usage, promptTokens };
  }
  return { vectors, usage: isCounted ? usage : undefined };
}

function textOf(input: EmbedCall["inputs"][number]): string {
  if (typeof input === "string") return input;
  const message = "input: Cohere embeds texts, not lists of tokens.";
  throw new ProviderFailure("rejected", message, { param: "input" });
}

/** Reads an answer. Throws ProviderFailure unless it contains one embedding per text. */
export const embeddingsRead = new AnswerRead(
  import.meta.url,
  (text, { texts }: { readonly texts: number }): Embeddings => {
    const answer = parsedAnswer(text);
    if (!isFields(answer) || !isFields(answer.embeddings)) throw brokenAnswer("no embeddings");
    const { float: list } = answer.embeddings;
    if (!Array.isArray(list) || list.length !== texts) {
      throw brokenAnswer("a different number of embeddings than inputs");
    }
    const { billed_units: billed } = isFields(answer.meta) ? answer.meta : {};
    const counts = isFields(billed) ? { billed_units: { output_tokens: 0, ...billed } } : undefined;
    return { vectors: list.map(vectorOf), usage: reportedUsage(counts) };
  },
);

function vectorOf(embedding: unknown): Float64Array {
  if (Array.isArray(embedding) && embedding.length > 0 && embedding.every(Number.isFinite)) {
    // A typed array passes between threads as one block, a list of numbers value by value.
    return Float64Array.from(embedding);
  }
  throw brokenAnswer("an embedding that is not a list of numbers");
}
