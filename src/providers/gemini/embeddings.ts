import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";
import { reportedUsage } from "./reported-usage.ts";

/** Google's error message: "At most 100 requests can be in one batch." */
const MAX_BATCH = 100;

/**
 * Posts a body with the given number of inputs to a method of a model, and reads the answer. Rejects with
 * ProviderFailure.
 */
export type PostToModel = <Result>(
  method: string,
  body: string | ReadableStream<Uint8Array>,
  read: AnswerRead<BatchOptions, Result>,
  inputs: number,
  maxBytes?: number,
) => Promise<Result>;

/**
 * Returns the embeddings of texts (https://ai.google.dev/api/embeddings#method:-models.batchEmbedContents).
 * Sends as many batches as needed, one at a time. Usage is undefined unless each batch reports it. Rejects
 * with ProviderFailure.
 *
 * @param modelName resource name: `models/…`
 */
export async function geminiEmbeddings(
  { inputs, dimensions, fields }: EmbedCall,
  modelName: string,
  post: PostToModel,
): Promise<Embeddings> {
  const vectors: ArrayLike<number>[] = [];
  const usages: (Usage | undefined)[] = [];
  for (let start = 0; start < inputs.length; start += MAX_BATCH) {
    const batch = inputs.slice(start, start + MAX_BATCH);
    const requests = batch.map((input) => ({
      model: modelName,
      content: { parts: [{ text: textOf(input) }] },
      ...(typeof fields.task_type === "string" && { taskType: fields.task_type }),
      ...(dimensions !== undefined && { outputDimensionality: dimensions }),
    }));
    const result = await post(
      "batchEmbedContents",
      JSON.stringify({ requests }),
      embeddedBatch,
      batch.length,
    );
    vectors.push(...result.vectors);
    usages.push(result.usage);
  }
  return { vectors, usage: summed(usages) };
}

function textOf(input: EmbedCall["inputs"][number]): string {
  if (typeof input === "string") return input;
  const message = "input: Gemini embeds texts, not lists of tokens.";
  throw new ProviderFailure("rejected", message, { param: "input" });
}

export interface BatchOptions {
  /** Number of inputs in the request. */
  readonly inputs: number;
  readonly failureContext: FailureContext;
}

/** Reads an answer. Throws ProviderFailure unless it contains one embedding per input. */
export const embeddedBatch = new AnswerRead(
  import.meta.url,
  (text, { inputs, failureContext }: BatchOptions): Embeddings => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    const vectors = vectorsOf(answer, inputs);
    const usage = isFields(answer) ? reportedUsage(answer.usageMetadata)?.usage : undefined;
    return { vectors, usage };
  },
);

function vectorsOf(answer: unknown, count: number): ArrayLike<number>[] {
  const embeddings = isFields(answer) ? answer.embeddings : undefined;
  if (!Array.isArray(embeddings) || embeddings.length !== count) {
    throw brokenAnswer("a different number of embeddings than inputs");
  }
  return embeddings.map((embedding) => {
    const values: unknown = isFields(embedding) ? embedding.values : undefined;
    if (Array.isArray(values) && values.length > 0 && values.every(Number.isFinite)) {
      // A typed array passes between threads as one block, a list of numbers value by value.
      return Float64Array.from(values);
    }
    throw brokenAnswer("an embedding that is not a list of numbers");
  });
}

function summed(usages: readonly (Usage | undefined)[]): Usage | undefined {
  let sum: Usage | undefined;
  for (const usage of usages) {
    if (usage === undefined) return undefined;
    const promptTokens = usage.promptTokens + (sum?.promptTokens ?? 0);
    // An embedding has no completion to charge.
    sum = { ...usage, promptTokens, completionTokens: 0, reasoningTokens: 0 };
  }
  return sum;
}
