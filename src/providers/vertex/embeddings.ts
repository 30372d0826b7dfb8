import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import type { BatchOptions, PostToModel } from "../gemini/embeddings.ts";
import { failureInside } from "../gemini/failure-mapping.ts";
import { reportedUsage } from "../gemini/reported-usage.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";

/**
 * Limits of a request: "up to 250 texts", and 20,000 tokens in total. A text has at most one token per
 * character.
 */
const MAX_TEXTS = 250;
const MAX_CHARACTERS = 20_000;
/** Models that accept one text per request. */
const SINGLE_TEXT = /gemini-embedding/;
/** Models with the method `embedContent`. */
const BY_CONTENT = /gemini-embedding-(?!001)/;
const PARALLEL_CALLS = 4;

/**
 * Returns the embeddings of texts by Vertex AI's models
 * (https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api), from as
 * many calls as needed. Vertex AI rejects a text that is too long instead of truncating it. Usage is
 * undefined unless each call reports it. Rejects with ProviderFailure.
 */
export async function vertexEmbeddings(call: EmbedCall, post: PostToModel): Promise<Embeddings> {
  const texts = call.inputs.map(textOf);
  const batches = batchesOf(texts, SINGLE_TEXT.test(call.model) ? 1 : MAX_TEXTS);
  const hasContent = BY_CONTENT.test(call.model);
  const embed = (texts: readonly string[]) => {
    const body = hasContent ? contentBody(texts[0]!, call) : predictionBody(texts, call);
    const method = hasContent ? "embedContent" : "predict";
    return post(method, JSON.stringify(body), vertexEmbedded, texts.length);
  };
  const answers: EmbeddingBatch[] = [];
  for (let start = 0; start < batches.length; start += PARALLEL_CALLS) {
    answers.push(...(await Promise.all(batches.slice(start, start + PARALLEL_CALLS).map(embed))));
  }
  return { vectors: answers.flatMap(({ vectors }) => vectors), usage: usageOf(answers) };
}

function textOf(input: EmbedCall["inputs"][number]): string {
  if (typeof input === "string") return input;
  const message = "input: Vertex AI embeds texts, not lists of tokens.";
  throw new ProviderFailure("rejected", message, { param: "input" });
}

function batchesOf(texts: readonly string[], maxTexts: number): string[][] {
  const batches: string[][] = [];
  let characters = 0;
  for (const text of texts) {
    const last = batches.at(-1);
    characters += text.length;
    if (last !== undefined && last.length < maxTexts && characters <= MAX_CHARACTERS) {
      last.push(text);
    } else {
      batches.push([text]);
      characters = text.length;
    }
  }
  return batches;
}

function predictionBody(texts: readonly string[], { dimensions, fields }: EmbedCall): object {
  const { task_type: taskType } = fields;
  return {
    instances: texts.map((content) => ({
      content,
      ...(typeof taskType === "string" && { task_type: taskType }),
    })),
    parameters: {
      autoTruncate: false,
      ...(dimensions !== undefined && { outputDimensionality: dimensions }),
    },
  };
}

function contentBody(text: string, { dimensions, fields }: EmbedCall): object {
  const { task_type: taskType } = fields;
  return {
    content: { role: "user", parts: [{ text }] },
    autoTruncate: false,
    ...(typeof taskType === "string" && { taskType }),
    ...(dimensions !== undefined && { outputDimensionality: dimensions }),
  };
}

/** The answer to one call. */
interface EmbeddingBatch {
  readonly vectors: readonly ArrayLike<number>[];
  /** Reported tokens. Undefined if the answer reports no count or an impossible count. */
  readonly promptTokens: number | undefined;
}

/**
 * Reads answers of both methods. Throws ProviderFailure unless the answer contains one embedding per input.
 */
export const vertexEmbedded = new AnswerRead(
  import.meta.url,
  (text, { inputs, failureContext }: BatchOptions): EmbeddingBatch => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    if (answer.embedding !== undefined) {
      const promptTokens = reportedUsage(answer.usageMetadata)?.usage.promptTokens;
      return { vectors: [vectorOf(answer.embedding)], promptTokens };
    }
    const { predictions } = answer;
    if (!Array.isArray(predictions) || predictions.length !== inputs) {
      throw brokenAnswer("a different number of embeddings than inputs");
    }
    const embeddings = predictions.map((prediction) =>
      isFields(prediction) ? prediction.embeddings : undefined,
    );
    return { vectors: embeddings.map(vectorOf), promptTokens: sum(embeddings.map(tokensOf)) };
  },
);

function vectorOf(embedding: unknown): ArrayLike<number> {
  const values: unknown = isFields(embedding) ? embedding.values : undefined;
  if (Array.isArray(values) && values.length > 0 && values.every(Number.isFinite)) {
    // A typed array passes between threads as one block, a list of numbers value by value.
    return Float64Array.from(values);
  }
  throw brokenAnswer("an embedding that is not a list of numbers");
}

function tokensOf(embedding: unknown): number | undefined {
  const statistics = isFields(embedding) ? embedding.statistics : undefined;
  const count = isFields(statistics) ? statistics.token_count : undefined;
  return Number.isSafeInteger(count) && (count as number) > 0 ? (count as number) : undefined;
}

function sum(counts: readonly (number | undefined)[]): number | undefined {
  let total = 0;
  for (const count of counts) {
    if (count === undefined) return undefined;
    total += count;
  }
  return total;
}

function usageOf(answers: readonly EmbeddingBatch[]): Usage | undefined {
  const promptTokens = sum(answers.map((answer) => answer.promptTokens));
  if (promptTokens === undefined) return undefined;
  return {
    promptTokens,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    estimated: false,
  };
}
