import { Type } from "typebox";
import type { ModelTerms } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import { exact, times } from "../../lib/exact-integer.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import { type AnswerFacts, type CostBound, fixedBound } from "../call/endpoint.ts";

// Parts of the endpoints whose models read tokens and write none: embeddings, moderations, rerank.

/** The usage in an answer. */
export const inputUsage = Type.Object({
  prompt_tokens: Type.Integer(),
  total_tokens: Type.Integer(),
  cost: Type.Number(),
});

export function renderInputUsage({ usage: { promptTokens }, costUsd }: AnswerFacts) {
  return { prompt_tokens: promptTokens, total_tokens: promptTokens, cost: costUsd };
}

/** Returns an upper bound of the cost: all tokens at the price of input. */
export function inputBound(tokens: number, { prices }: Pick<ModelTerms, "prices">): CostBound {
  return fixedBound(times(tokens, exact(prices.inputTokenFemto)), tokens);
}

/** The error 413 of input that has more tokens than the model accepts. */
export class InputTooLong {
  readonly description: string;
  readonly #param: string;

  constructor(param: string, description: string) {
    this.#param = param;
    this.description = description;
  }

  error(cause?: unknown): GatewayError {
    return new GatewayError("input_too_long", this.description, { param: this.#param, cause });
  }

  /** Resolves with the provider's answer. Rejects with 413 if the provider rejects the input as too long. */
  async answerOf<Answer>(send: () => Promise<Answer>): Promise<Answer> {
    try {
      return await send();
    } catch (error) {
      throw error instanceof ProviderFailure && error.isTooLong ? this.error(error) : error;
    }
  }
}
