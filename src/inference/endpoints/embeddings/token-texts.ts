import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";

/** OpenAI's embedding models, which share one encoding. */
const MODEL_WITH_ENCODING = /(?:^|\/)text-embedding-(?:3-small|3-large|ada-002)$/;
/** Maximum tokens of an input of these models. */
const MAX_TOKENS = 8_191;
/** Tokens to decode before yielding to the event loop. */
const TOKENS_AT_A_TIME = 16_384;

type Tokens = readonly number[];

/**
 * Returns the body of an embeddings request with lists of tokens replaced by texts, so that guardrails check
 * what the provider receives. Returns undefined if it has only texts. Rejects with 400 if the encoding of a
 * model is unknown.
 */
export async function withoutTokens(body: unknown): Promise<unknown> {
  const { input, model, models } = body as Readonly<Record<string, unknown>>;
  if (!Array.isArray(input) || typeof input[0] === "string") return undefined;
  const named = [model, ...(Array.isArray(models) ? models : [])].filter(Boolean);
  const isKnown = named.every((name) => typeof name === "string" && MODEL_WITH_ENCODING.test(name));
  if (!isKnown) throw unreadable("the encoding of the model is unknown");
  const lists = (typeof input[0] === "number" ? [input] : input) as readonly Tokens[];
  if (lists.some(({ length }) => length > MAX_TOKENS)) {
    throw unreadable(`a list has more than ${MAX_TOKENS} tokens`);
  }
  const { decode } = await import("gpt-tokenizer/encoding/cl100k_base");
  const texts: string[] = [];
  let sincePause = 0;
  for (const tokens of lists) {
    texts.push(textOf(tokens, decode));
    sincePause += tokens.length;
    if (sincePause > TOKENS_AT_A_TIME) {
      await Bun.sleep(0);
      sincePause = 0;
    }
  }
  if (texts.includes("")) throw unreadable("a list has no text");
  return isFields(body) ? { ...body, input: texts } : undefined;
}

function textOf(tokens: Tokens, decode: (tokens: number[]) => string): string {
  try {
    return decode(tokens as number[]);
  } catch (error) {
    throw unreadable("a list has tokens that are invalid in the model's encoding", error);
  }
}

function unreadable(why: string, cause?: unknown): GatewayError {
  const message = `A guardrail checks texts, and cannot check these tokens: ${why}. Send texts.`;
  return new GatewayError("unsupported_parameter", message, { param: "input", cause });
}
