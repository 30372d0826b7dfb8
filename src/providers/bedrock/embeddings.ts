import { isFields } from "../../lib/json.ts";
import { NO_TOKENS } from "../../lib/usage.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";

/** "At most 96 texts per call." */
const MAX_COHERE_BATCH = 96;
/** Titan embeds one text a call. */
const TITAN_CALLS_AT_ONCE = 8;

/** Whose answer it is, and of how many texts. */
interface EmbeddingsForm {
  readonly maker: "cohere" | "titan";
  readonly texts: number;
}

/** Invokes the model of the call with a body, and reads the answer. Rejects with ProviderFailure. */
export type InvokeModel = (body: string, form: EmbeddingsForm) => Promise<Embeddings>;

/**
 * Embeddings of texts, by Titan's or Cohere's models
 * (https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html,
 * model-parameters-embed.html there), in as many calls as it takes. Usage is undefined unless each call reports
 * one. Rejects with ProviderFailure.
 */
export async function bedrockEmbeddings(call: EmbedCall, invoke: InvokeModel): Promise<Embeddings> {
  const texts = call.inputs.map(textOf);
  const isCohere = [call.model, call.modelId].some((name) => /\bcohere[./]/.test(name ?? ""));
  const parts = isCohere ? await ofCohere(call, texts, invoke) : await ofTitan(call, texts, invoke);
  const counts = parts.map(({ usage }) => usage?.promptTokens);
  const isCounted = counts.every((one) => one !== undefined);
  const promptTokens = counts.reduce<number>((sum, one) => sum + (one ?? 0), 0);
  return {
    vectors: parts.flatMap(({ vectors }) => vectors),
    usage: isCounted && promptTokens > 0 ? { ...NO_TOKENS, promptTokens } : undefined,
  };
}

function textOf(input: EmbedCall["inputs"][number]): string {
  if (typeof input === "string") return input;
  const message = "input: Bedrock embeds texts, and no lists of tokens.";
  throw new ProviderFailure("rejected", message, { param: "input" });
}

async function ofTitan(
  { dimensions }: EmbedCall,
  texts: readonly string[],
  invoke: InvokeModel,
): Promise<Embeddings[]> {
  const parts: Embeddings[] = [];
  for (let start = 0; start < texts.length; start += TITAN_CALLS_AT_ONCE) {
    const batch = texts.slice(start, start + TITAN_CALLS_AT_ONCE).map((inputText) => {
      const body = { inputText, ...(dimensions !== undefined && { dimensions }) };
      return invoke(JSON.stringify(body), { maker: "titan", texts: 1 });
    });
    parts.push(...(await Promise.all(batch)));
  }
  return parts;
}

async function ofCohere(
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

/** Tells what Cohere's answers do not. */
export function reportedTokens(headers: { get(name: string): string | null }): number | undefined {
  const text = headers.get("x-amzn-bedrock-input-token-count");
  return text !== null && /^\d{1,12}$/.test(text) ? Number(text) : undefined;
}

interface ReadOptions extends EmbeddingsForm {
  readonly headerTokens: number | undefined;
}

/** Throws ProviderFailure where the text is no list of as many embeddings as texts were sent. */
export const embeddingsRead = new AnswerRead(
  import.meta.url,
  (text, { maker, texts, headerTokens }: ReadOptions): Embeddings => {
    const answer = parsedAnswer(text);
    const { embeddings, embedding, inputTextTokenCount } = isFields(answer) ? answer : {};
    // Cohere's are by their type, where the model has several.
    const ofCohere = isFields(embeddings) ? embeddings.float : embeddings;
    const list = maker === "titan" ? [embedding] : ofCohere;
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
    // Passes between threads as one block; a list of numbers does as so many values.
    return Float64Array.from(embedding);
  }
  throw brokenAnswer("an embedding that is not a list of numbers");
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
