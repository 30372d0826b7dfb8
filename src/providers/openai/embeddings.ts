import { jsonValue } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import type { EmbedCall, Embeddings, ProviderSettings } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";
import { openAiVariant } from "./openai-variants.ts";

const FLOAT_BYTES = 4;

/** Returns a function that requests embeddings with OpenAI's API. */
export function openAiEmbed(
  wire: HttpJsonProvider,
  settings: ProviderSettings,
): (call: EmbedCall) => Promise<Embeddings> {
  const url = endpointUrl(settings.baseUrl, "/embeddings");
  const isBase64 = openAiVariant(settings.type).embedsBase64;
  return async (call) => {
    const body = JSON.stringify({
      ...call.fields,
      model: call.model,
      input: call.inputs,
      ...(isBase64 && { encoding_format: "base64" }),
      ...(call.dimensions !== undefined && { dimensions: call.dimensions }),
    });
    const response = await wire.post(url, body, call);
    const options = { inputs: call.inputs.length, failureContext: wire.failureContext };
    return wire.read(response, openAiEmbeddings, options, call);
  };
}

interface EmbeddingsOptions {
  /** Number of inputs in the request. */
  readonly inputs: number;
  readonly failureContext: FailureContext;
}

/** Reads embeddings. Throws ProviderFailure if the text is not a list with one embedding for each input. */
export const openAiEmbeddings = new AnswerRead(
  import.meta.url,
  (text, { inputs, failureContext }: EmbeddingsOptions) =>
    embeddingsOf(parsed(text, failureContext), inputs),
);

function parsed(text: string, context: FailureContext): Record<string, unknown> {
  const value = jsonValue(text);
  if (value === undefined) throw brokenAnswer("a body that is not JSON");
  const failure = failureInside(value, context);
  if (failure !== undefined) throw failure;
  if (typeof value !== "object" || value === null) throw brokenAnswer("JSON that is not an object");
  return value as Record<string, unknown>;
}

/** Returns the vectors in the order of their inputs. The provider can send them in any order. */
function embeddingsOf(answer: Record<string, unknown>, inputs: number): Embeddings {
  const { data } = answer;
  if (!Array.isArray(data) || data.length !== inputs) {
    throw brokenAnswer("a number of embeddings that differs from the number of inputs");
  }
  const vectors: ArrayLike<number>[] = new Array(inputs);
  data.forEach((item: { index?: unknown; embedding?: unknown } | null, position) => {
    const index = item?.index ?? position;
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= inputs) {
      throw brokenAnswer("an embedding for an unknown input");
    }
    if (vectors[index as number] !== undefined) throw brokenAnswer("two embeddings for one input");
    vectors[index as number] = vectorOf(item?.embedding);
  });
  return { vectors, usage: usageOf(answer.usage) };
}

function vectorOf(embedding: unknown): ArrayLike<number> {
  if (typeof embedding === "string") return floatsOf(Buffer.from(embedding, "base64"));
  if (Array.isArray(embedding) && embedding.length > 0 && embedding.every(Number.isFinite)) {
    // A typed array passes between threads as one block, a list of numbers as separate values.
    return Float64Array.from(embedding);
  }
  throw brokenAnswer("an embedding that is not a list of numbers");
}

function floatsOf(bytes: Buffer): Float32Array {
  const length = bytes.length / FLOAT_BYTES;
  if (length === 0 || !Number.isInteger(length)) throw brokenAnswer("a truncated embedding");
  const floats = new Float32Array(length);
  for (let at = 0; at < length; at++) {
    floats[at] = bytes.readFloatLE(at * FLOAT_BYTES);
    if (!Number.isFinite(floats[at]))
      throw brokenAnswer("an embedding with a value that is not a number");
  }
  return floats;
}

/** Returns the reported usage. Undefined if none is reported, or an impossible one: inputs are never empty. */
function usageOf(raw: unknown): Usage | undefined {
  const { prompt_tokens: promptTokens } = (raw ?? {}) as { prompt_tokens?: unknown };
  if (!Number.isSafeInteger(promptTokens) || (promptTokens as number) <= 0) return undefined;
  return {
    promptTokens: promptTokens as number,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    estimated: false,
  };
}
