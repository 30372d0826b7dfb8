/** Tokens of one call, normalised: prompt tokens include cached reads and writes, completion tokens reasoning. */
export interface Usage {
  readonly promptTokens: number;
  readonly cachedPromptTokens: number;
  readonly cacheWriteTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** True where tokens were counted here. */
  readonly estimated: boolean;
}
