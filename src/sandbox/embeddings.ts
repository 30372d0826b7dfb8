import { yieldToEventLoop } from "../lib/yield-to-event-loop.ts";
import { type EmbedCall, type Embeddings, ProviderFailure } from "../providers/interface.ts";
import { unknownModel } from "./drills.ts";
import { countTokens } from "./tokens.ts";
import { aborted } from "./wait.ts";

const MODEL = "embed";
const DIMENSIONS = 1536;
const MAX_INPUT_TOKENS = 8192;
const TRIGRAM = 3;
/**
 * Number of vector positions per feature. With several, one hash collision does not make two features equal.
 */
const POSITIONS_PER_FEATURE = 4;

/**
 * Returns deterministic vectors, in which similar texts are near each other. The hashes of each word, pair of
 * words and trigram of characters select vector positions to add to. Vectors are normalised to length 1.
 */
export async function sandboxEmbed(call: EmbedCall): Promise<Embeddings> {
  if (call.signal.aborted) throw aborted(call.signal);
  const name = call.model.replace(/^sandbox\//, "");
  if (name !== MODEL) throw unknownModel(name, "embedding");
  const { dimensions = DIMENSIONS } = call;
  if (dimensions > DIMENSIONS) {
    const what = `dimensions must be at most ${DIMENSIONS}`;
    throw new ProviderFailure("rejected", what, { status: 400, param: "dimensions" });
  }
  let promptTokens = 0;
  const vectors: Float32Array[] = [];
  for (const input of call.inputs) {
    // Without a pause, many long inputs would block the event loop.
    await yieldToEventLoop();
    if (call.signal.aborted) throw aborted(call.signal);
    const tokens = typeof input === "string" ? countTokens(input) : input.length;
    if (tokens > MAX_INPUT_TOKENS) {
      const what = `an input has more than ${MAX_INPUT_TOKENS} tokens`;
      throw new ProviderFailure("rejected", what, { status: 400, param: "input", isTooLong: true });
    }
    promptTokens += tokens;
    vectors.push(vectorOf(featuresOf(input), dimensions));
  }
  const usage = {
    promptTokens,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    estimated: false,
  };
  return { vectors, usage };
}

function* featuresOf(input: string | readonly number[]): Generator<string> {
  const words =
    typeof input === "string"
      ? (input.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [input])
      : input.map((token) => `#${token}`);
  let previous: string | undefined;
  for (const word of words) {
    yield word;
    if (previous !== undefined) yield `${previous} ${word}`;
    previous = word;
    if (typeof input !== "string") continue;
    for (let index = 0; index + TRIGRAM <= word.length; index++)
      yield `~${word.slice(index, index + TRIGRAM)}`;
  }
}

/**
 * Returns the vector of features. It hashes into the requested number of dimensions, so that short vectors
 * distinguish texts too.
 */
function vectorOf(features: Iterable<string>, dimensions: number): Float32Array {
  const vector = new Float64Array(dimensions);
  for (const feature of features) {
    for (let seed = 0; seed < POSITIONS_PER_FEATURE; seed++) {
      const hash = Bun.hash.xxHash32(feature, seed);
      const position = hash % dimensions;
      vector[position] = vector[position]! + (hash & 0x80000000 ? 1 : -1);
    }
  }
  let squares = 0;
  for (const value of vector) squares += value * value;
  // The features can cancel each other out.
  if (squares === 0) vector[0] = squares = 1;
  return Float32Array.from(vector, (value) => value / Math.sqrt(squares));
}
