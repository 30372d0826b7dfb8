import { isFields } from "../../lib/json.ts";
import { NO_TOKENS } from "../../lib/usage.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";

/** Cohere's documentation: "At most 96 texts per call." */
const MAX_COHERE_BATCH = 96;
/** Maximum number of parallel calls of Titan, which embeds one text per call. */
const TITAN_PARALLEL_CALLS = 8;

/** The vendor of the model and the number of texts in one call. */
interface EmbeddingsForm {
  readonly maker: "cohere" | "titan";
  readonly texts: number;
}

/** Invokes the model with a body and reads the answer. Rejects with ProviderFailure. */
export type InvokeModel = (body: string, form: EmbeddingsForm) => Promise<Embeddings>;

/**
 * Returns the embeddings of texts by Titan's or Cohere's models
 * (https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html,
 * model-parameters-embed.html there), from as many calls as needed. Usage is undefined unless each call
 * reports it. Rejects with ProviderFailure.
 */
export async function bedrockEmbeddings(call: EmbedCall, invoke: InvokeModel): Promise<Embeddings> {
  const texts = call.inputs.map(textOf);
  const isCohere = [call.model, call.modelId].some((name) => /\bcohere[./]/.test(name ?? ""));
  const parts = isCohere
    ? await embedByCohere(call, texts, invoke)
    : await embedByTitan(call, texts, invoke);
  const counts = parts.map(({ usage }) => usage?.promptTokens);
  const isCounted = counts.every((count) => count !== undefined);
  const promptTokens = counts.reduce<number>((sum, count) => sum + (count ?? 0), 0);
  return {
    vectors: parts.flatMap(({ vectors }) => vectors),
    usage: isCounted && promptTokens > 0 ? { ...NO_TOKENS, promptTokens } : undefined,
  };
}

function textOf(input: EmbedCall["inputs"][number]): string {
  if (typeof input === "string") return input;
  const message = "input: Bedrock embeds texts, not lists of tokens.";
  throw new ProviderFailure("rejected", message, { param: "input" });
}

async function embedByTitan(
  { dimensions }: EmbedCall,
  texts: readonly string[],
  invoke: InvokeModel,
): Promise<Embeddings[]> {
  const parts: Embeddings[] = [];
  for (let start = 0; start < texts.length; start += TITAN_PARALLEL_CALLS) {
    const batch = texts.slice(start, start + TITAN_PARALLEL_CALLS).map((inputText) => {
      const body = { inputText, ...(dimensions !== undefined && { dimensions }) };
      return invoke(JSON.stringify(body), { maker: "titan", texts: 1 });
    });
    parts.push(...(await Promise.all(batch)));
  }
  return parts;
}

async function embedByCohere(
  { dimensions, fields }: EmbedCall,
  texts: readonly string[],
  invoke: InvokeModel,
): Promise<Embeddings[]> {
  const { input_type: stated = "search_document", truncate = "NONE" } = fields;
  const parts: Embeddings[] = [];
  for (let start = 0; start < texts.length; start += MAX_COHERE_BATCH) {
    const batch = texts.slice(start, start + MAX_COHERE_BATCH);
    const body = {
      texts: batch,
      input_type: stated,
      truncate,
      ...(dimensions !== undefined && { output_dimension: dimensions }),
    };
    parts.push(await invoke(JSON.stringify(body), { maker: "cohere", texts: batch.length }));
  }
  return parts;
}

/**
 * Returns the input tokens that a response header reports. The bodies of Cohere's answers do not have them.
 */
export function reportedTokens(headers: { get(name: string): string | null }): number | undefined {
  const text = headers.get("x-amzn-bedrock-input-token-count");
  return text !== null && /^\d{1,12}$/.test(text) ? Number(text) : undefined;
}

interface ReadOptions extends EmbeddingsForm {
  readonly headerTokens: number | undefined;
}

/** Reads an answer. Throws ProviderFailure unless it contains one embedding per text. */
export const embeddingsRead = new AnswerRead(
  import.meta.url,
  (text, { maker, texts, headerTokens }: ReadOptions): Embeddings => {
    const answer = parsedAnswer(text);
    const { embeddings, embedding, inputTextTokenCount } = isFields(answer) ? answer : {};
    // Cohere groups embeddings by type if the model has several types.
    const cohereVectors = isFields(embeddings) ? embeddings.float : embeddings;
    const list = maker === "titan" ? [embedding] : cohereVectors;
    if (!Array.isArray(list) || list.length !== texts) {
      throw brokenAnswer("a different number of embeddings than inputs");
    }
    const promptTokens = isCount(inputTextTokenCount) ? inputTextTokenCount : headerTokens;
    return {
      vectors: list.map(vectorOf),
      usage: promptTokens === undefined ? undefined : { ...NO_TOKENS, promptTokens },
    };
  },
);

function vectorOf(embedding: unknown): Float64Array {
  if (Array.isArray(embedding) && embedding.length > 0 && embedding.every(Number.isFinite)) {
    // A typed array passes between threads as one block, a list of numbers value by value.
    return Float64Array.from(embedding);
  }
  throw brokenAnswer("an embedding that is not a list of numbers");
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
