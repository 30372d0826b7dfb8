import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";

/** OpenAI's models, which have one encoding. */
const MODEL_WITH_ENCODING = /(?:^|\/)text-embedding-(?:3-small|3-large|ada-002)$/;
/** The longest input that these models take. */
const MAX_TOKENS = 8_191;
/** Tokens between two pauses in which the process does other things. */
const TOKENS_AT_A_TIME = 16_384;

type Tokens = readonly number[];

/**
 * The body of a request for embeddings with texts in place of lists of tokens, for guardrails to look through: the
 * provider gets what they have seen. Undefined if it has texts alone. Rejects with 400 if the encoding of a model is
 * not known.
 */
export async function withoutTokens(body: unknown): Promise<unknown> {
  const { input, model, models } = body as Readonly<Record<string, unknown>>;
  if (!Array.isArray(input) || typeof input[0] === "string") return undefined;
  const named = [model, ...(Array.isArray(models) ? models : [])].filter(Boolean);
  const isKnown = named.every((one) => typeof one === "string" && MODEL_WITH_ENCODING.test(one));
  if (!isKnown) throw unreadable("the encoding of the model is not known");
  const lists = (typeof input[0] === "number" ? [input] : input) as readonly Tokens[];
  if (lists.some(({ length }) => length > MAX_TOKENS)) {
    throw unreadable(`one has more than ${MAX_TOKENS} tokens`);
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
  if (texts.includes("")) throw unreadable("one has no text");
  return isFields(body) ? { ...body, input: texts } : undefined;
}

function textOf(tokens: Tokens, decode: (tokens: number[]) => string): string {
  try {
    return decode(tokens as number[]);
  } catch (error) {
    throw unreadable("one is none of the encoding", error);
  }
}

function unreadable(why: string, cause?: unknown): GatewayError {
  const message = `A guardrail looks through texts, and cannot through these tokens: ${why}. Send texts.`;
  return new GatewayError("unsupported_parameter", message, { param: "input", cause });
}
