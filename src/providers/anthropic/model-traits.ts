/**
 * Differences between Claude models in the requests that they accept, from Anthropic's overview of models and
 * its migration guides (https://platform.claude.com/docs/en/about-claude/models).
 */
export interface ClaudeTraits {
  /**
   * How a request enables thinking. `budget`: with a number of tokens. `adaptive`: with an effort, and the
   * model decides how much to think.
   */
  readonly thinking: "none" | "budget" | "adaptive";
  /** Whether the model accepts a token budget for thinking. Some adaptive models do too. */
  readonly takesThinkingBudget: boolean;
  readonly canStopThinking: boolean;
  /**
   * Whether the model can think between tool calls. With a budget it does so only if a beta header requests
   * it.
   */
  readonly interleavesThinking: boolean;
  readonly hasXhighEffort: boolean;
  /** Whether the model accepts `temperature`, `top_p` and `top_k`. */
  readonly takesSampling: boolean;
  /** Whether `tool_choice` can demand a tool. */
  readonly takesForcedTools: boolean;
  /** Whether the model supports structured outputs with a JSON schema, and strict tools. */
  readonly takesSchemas: boolean;
}

/** Traits of models from other vendors with this API: the oldest features only. */
const OTHERS: ClaudeTraits = {
  thinking: "budget",
  takesThinkingBudget: true,
  canStopThinking: true,
  interleavesThinking: false,
  hasXhighEffort: false,
  takesSampling: true,
  takesForcedTools: true,
  takesSchemas: false,
};

/** Matches family and version in either order. Dates after them are not versions. */
const NAME = /claude-(?:(?<family>[a-z]+)-)?(?:v?(?<major>\d)(?:[-.](?<minor>\d)(?!\d))?)?/;

const FIRST_THINKING = 3.7;
const FIRST_INTERLEAVING = 4;
const FIRST_WITH_SCHEMAS = 4.5;
const FIRST_ADAPTIVE = 4.6;
/** First version whose models accept neither a thinking budget nor sampling parameters. */
const FIRST_WITHOUT_SAMPLING = 4.7;

/**
 * Returns the traits of a model.
 *
 * @param names the provider's name of the model and its id in the catalogue; the first name of a Claude model
 * counts
 */
export function claudeTraits(...names: readonly (string | undefined)[]): ClaudeTraits {
  const groups = names
    .map((name) => NAME.exec(name ?? "")?.groups)
    .find((match) => match !== undefined);
  if (groups === undefined) return OTHERS;
  const { family = "", major, minor = "0" } = groups;
  // A name without a version belongs to a model that is newer than this table.
  const version = major === undefined ? Number.POSITIVE_INFINITY : Number(`${major}.${minor}`);
  const isAdaptive = version >= FIRST_ADAPTIVE;
  const isFable = family === "fable" || family === "mythos";
  const isLateFable = isFable && version >= 5.1;
  const isLateOpusOrSonnet = (family === "opus" || family === "sonnet") && version >= 5.5;
  return {
    thinking: isAdaptive ? "adaptive" : version >= FIRST_THINKING ? "budget" : "none",
    takesThinkingBudget: version >= FIRST_THINKING && version < FIRST_WITHOUT_SAMPLING,
    canStopThinking: !isFable && !isLateOpusOrSonnet,
    interleavesThinking: version >= FIRST_INTERLEAVING,
    hasXhighEffort: version >= FIRST_WITHOUT_SAMPLING,
    takesSampling: version < FIRST_WITHOUT_SAMPLING,
    takesForcedTools: !isLateFable && !isLateOpusOrSonnet,
    takesSchemas: version >= FIRST_WITH_SCHEMAS || (family === "opus" && version >= 4.1),
  };
}
