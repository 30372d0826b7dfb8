import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";
import { reportedUsage } from "./reported-usage.ts";

/** "At most 100 requests can be in one batch." */
const MAX_BATCH = 100;

/** Posts a body for so many inputs to a method of a model, and reads the answer. Rejects with ProviderFailure. */
export type AskModel = <Result>(
  method: string,
  body: string | ReadableStream<Uint8Array>,
  read: AnswerRead<BatchOptions, Result>,
  inputs: number,
  maxBytes?: number,
) => Promise<Result>;

/**
 * Embeddings of texts (https://ai.google.dev/api/embeddings#method:-models.batchEmbedContents), in as many
 * batches as it takes, one after the other. Rejects with ProviderFailure. Usage is undefined unless each batch
 * reports one.
 *
 * @param modelName as a resource: `models/…`
 */
export async function geminiEmbeddings(
  { inputs, dimensions, fields }: EmbedCall,
  modelName: string,
  ask: AskModel,
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
    const embedded = await ask(
      "batchEmbedContents",
      JSON.stringify({ requests }),
      embeddedBatch,
      batch.length,
    );
    vectors.push(...embedded.vectors);
    usages.push(embedded.usage);
  }
  return { vectors, usage: summed(usages) };
}

function textOf(input: EmbedCall["inputs"][number]): string {
  if (typeof input === "string") return input;
  const message = "input: Gemini embeds texts, and no lists of tokens.";
  throw new ProviderFailure("rejected", message, { param: "input" });
}

export interface BatchOptions {
  /** How many were sent. */
  readonly inputs: number;
  readonly failureContext: FailureContext;
}

/** Throws ProviderFailure where the text is no list of as many embeddings. */
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
      // Passes between threads as one block; a list of numbers does as so many values.
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
    // An embedding has no answer to pay for.
    sum = { ...usage, promptTokens, completionTokens: 0, reasoningTokens: 0 };
  }
  return sum;
}
