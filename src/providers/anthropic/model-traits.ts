/**
 * What Claude models differ in as to the requests that they take, from Anthropic's overview of models and its
 * migration guides (https://platform.claude.com/docs/en/about-claude/models).
 */
export interface ClaudeTraits {
  /**
   * `budget`: thinking is asked for with a number of tokens; `adaptive`: with an effort, and the model decides
   * how much to think.
   */
  readonly thinking: "none" | "budget" | "adaptive";
  /** Whether it takes a number of tokens for its thinking; some adaptive models do too. */
  readonly takesThinkingBudget: boolean;
  readonly canStopThinking: boolean;
  /** Whether it can think between calls of tools; with a budget only where a beta header asks for it. */
  readonly interleavesThinking: boolean;
  readonly hasXhighEffort: boolean;
  /** Whether it takes `temperature`, `top_p` and `top_k`. */
  readonly takesSampling: boolean;
  /** Whether `tool_choice` can demand a tool. */
  readonly takesForcedTools: boolean;
  /** Whether answers can be held to a JSON schema, and tools be strict. */
  readonly takesSchemas: boolean;
}

/** For models of others behind this wire: what has been in it for long. */
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

/** Family and version stand in either order, and dates behind them are no versions. */
const NAME = /claude-(?:(?<family>[a-z]+)-)?(?:v?(?<major>\d)(?:[-.](?<minor>\d)(?!\d))?)?/;

const FIRST_THINKING = 3.7;
const FIRST_INTERLEAVING = 4;
const FIRST_WITH_SCHEMAS = 4.5;
const FIRST_ADAPTIVE = 4.6;
/** From here on neither a thinking budget nor sampling parameters are taken. */
const FIRST_WITHOUT_SAMPLING = 4.7;

/** @param names the provider's name of the model, and its id in the catalogue: the first that is Claude's counts */
export function claudeTraits(...names: readonly (string | undefined)[]): ClaudeTraits {
  const groups = names
    .map((name) => NAME.exec(name ?? "")?.groups)
    .find((one) => one !== undefined);
  if (groups === undefined) return OTHERS;
  const { family = "", major, minor = "0" } = groups;
  // A name without a number is one that came later than this table.
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
