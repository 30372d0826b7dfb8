import { OVERFLOWING_NUMBER } from "./wire.ts";

/** Usages that no provider should send, by name. */
export const ABSURD_USAGES: Record<string, unknown> = {
  negative: { prompt_tokens: -5, completion_tokens: -7, total_tokens: -12 },
  enormous: { prompt_tokens: 1e18, completion_tokens: 1e18, total_tokens: 2e18 },
  overflowing: { prompt_tokens: OVERFLOWING_NUMBER, completion_tokens: OVERFLOWING_NUMBER },
  fractional: { prompt_tokens: 1.5, completion_tokens: 2.25, total_tokens: 3.75 },
  strings: { prompt_tokens: "12", completion_tokens: "34", total_tokens: "46" },
  "not-a-number": { prompt_tokens: "NaN", completion_tokens: "NaN", total_tokens: "NaN" },
  nulls: { prompt_tokens: null, completion_tokens: null, total_tokens: null },
  empty: {},
  list: [1, 2, 3],
  word: "many",
  zero: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
  "parts-beyond-whole": {
    prompt_tokens: 10,
    completion_tokens: 5,
    total_tokens: 15,
    prompt_tokens_details: { cached_tokens: 1_000_000 },
    completion_tokens_details: { reasoning_tokens: 1_000_000 },
  },
};
