import type { ChatCall } from "../interface.ts";

/** As OpenAI's: no more alternatives than these. */
const MAX_ALTERNATIVES = 20;
const BYTES_SHOWN = new TextEncoder();

interface TokenLogprob {
  readonly token: string;
  /** Natural logarithm of the probability. */
  readonly logprob: number;
  readonly bytes: readonly number[];
}

interface ContentLogprob extends TokenLogprob {
  readonly top_logprobs: readonly TokenLogprob[];
}

/** The `logprobs` of a choice, in OpenAI's shape. */
export interface ChoiceLogprobs {
  readonly content: readonly ContentLogprob[] | null;
  readonly refusal: null;
}

/** How many alternatives are asked for with each token; undefined where no log probabilities are. */
export function alternativesAsked(body: ChatCall["body"]): number | undefined {
  if (body.logprobs !== true) return undefined;
  const { top_logprobs: asked } = body;
  return typeof asked === "number" ? Math.min(Math.max(asked, 0), MAX_ALTERNATIVES) : 0;
}

/**
 * Log probabilities of tokens, made up by a fixed rule: each token gets a probability above one half that
 * follows from its text, so it is the likeliest one, and its alternatives share what is left.
 */
export function logprobsOf(tokens: readonly string[] | null, alternatives: number): ChoiceLogprobs {
  const content = tokens?.map((token) => contentLogprob(token, alternatives)) ?? null;
  return { content, refusal: null };
}

function contentLogprob(token: string, alternatives: number): ContentLogprob {
  const probability = 0.5 + 0.49 * fractionOf(token);
  const chosen = tokenLogprob(token, probability);
  if (alternatives === 0) return { ...chosen, top_logprobs: [] };
  const others = Array.from({ length: alternatives - 1 }, (_, rank) =>
    tokenLogprob(` alt${rank + 1}`, (1 - probability) / 2 ** (rank + 1)),
  );
  return { ...chosen, top_logprobs: [chosen, ...others] };
}

function tokenLogprob(token: string, probability: number): TokenLogprob {
  return { token, logprob: Math.log(probability), bytes: [...BYTES_SHOWN.encode(token)] };
}

/** From 0 to 1, the same for the same text. */
function fractionOf(text: string): number {
  return Bun.hash.crc32(text) / 0xffff_ffff;
}
