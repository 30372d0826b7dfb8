import { isFields } from "../../lib/json.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";

/**
 * Returns the body of /api/embed (https://docs.ollama.com/api/embed). Ollama rejects texts that are too long
 * instead of truncating them. Throws ProviderFailure for lists of tokens.
 */
export function embedBody({ model, inputs, dimensions, fields }: EmbedCall): string {
  if (!inputs.every((input) => typeof input === "string")) {
    const message = "input: Ollama embeds texts, not lists of tokens.";
    throw new ProviderFailure("rejected", message, { param: "input" });
  }
  const { keep_alive: keepAlive, options } = fields;
  return JSON.stringify({
    model,
    input: inputs,
    truncate: false,
    ...(dimensions !== undefined && { dimensions }),
    ...(keepAlive !== undefined && { keep_alive: keepAlive }),
    ...(isFields(options) && { options }),
  });
}

interface EmbedOptions {
  /** Number of inputs in the request. */
  readonly inputs: number;
  readonly failureContext: FailureContext;
}

/** Reads an answer. Throws ProviderFailure unless it contains one embedding per input. */
export const embeddingsRead = new AnswerRead(
  import.meta.url,
  (text, { inputs, failureContext }: EmbedOptions): Embeddings => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    const { embeddings: list, prompt_eval_count: count } = isFields(answer) ? answer : {};
    if (!Array.isArray(list) || list.length !== inputs) {
      throw brokenAnswer("a different number of embeddings than inputs");
    }
    const isCount = Number.isSafeInteger(count) && (count as number) > 0;
    return { vectors: list.map(vectorOf), usage: isCount ? usageOf(count as number) : undefined };
  },
);

function usageOf(promptTokens: number) {
  return {
    promptTokens,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    estimated: false,
  };
}

function vectorOf(embedding: unknown): Float64Array {
  if (Array.isArray(embedding) && embedding.length > 0 && embedding.every(Number.isFinite)) {
    // A typed array passes between threads as one block, a list of numbers value by value.
    return Float64Array.from(embedding);
  }
  throw brokenAnswer("an embedding that is not a list of numbers");
}
