import type { ChatCall } from "../interface.ts";

const SENTENCES = [
  "The last message says what is wanted.",
  " It is repeated, counted or handed to a tool by a fixed rule.",
  " Nothing is looked up and nothing is made up.",
  " The same request always gives the same answer.",
];
const SENTENCES_OF_EFFORT: Readonly<Record<string, number>> = {
  none: 0,
  minimal: 1,
  low: 1,
  medium: 2,
  high: 3,
};

export interface Reasoning {
  readonly text: string;
  /** Reasoning may be counted without being shown. */
  readonly shown: boolean;
}

/**
 * The reasoning that a request asks for: by `reasoning: {effort | max_tokens | enabled, exclude}`,
 * `reasoning_effort`, or `include_reasoning`. More effort is more sentences; text "" is none.
 */
export function reasoningFor(body: ChatCall["body"]): Reasoning {
  const { reasoning, include_reasoning: included } = body;
  const options: Readonly<Record<string, unknown>> =
    typeof reasoning === "object" && reasoning !== null ? { ...reasoning } : {};
  const effort = options.effort ?? body.reasoning_effort;
  const shown = options.exclude !== true && included !== false;
  if (typeof effort === "string") {
    const sentences = SENTENCES_OF_EFFORT[effort] ?? SENTENCES.length;
    return { text: SENTENCES.slice(0, sentences).join(""), shown };
  }
  const isAsked =
    included === true || options.enabled === true || typeof options.max_tokens === "number";
  return { text: isAsked ? SENTENCES.slice(0, 2).join("") : "", shown };
}
