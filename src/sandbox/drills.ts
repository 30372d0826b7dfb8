import { ProviderFailure } from "../providers/interface.ts";
import type { AnswerManner } from "./plan-answer.ts";

/** The Retry-After of `error-429`, in milliseconds. */
export const DRILL_RETRY_AFTER_MS = 1_000;
/** Delay before each token of `slow`, in milliseconds. */
export const SLOW_TOKEN_DELAY_MS = 50;
/** Delay before the first token of `slow-first-token`, in milliseconds. */
export const FIRST_TOKEN_DELAY_MS = 5_000;
/** Number of tokens that `cut` and `stall` send before they break off. */
export const TOKENS_BEFORE_BREAK = 3;
/** Silence of `stall` before it breaks off, in milliseconds. */
export const STALL_MS = 30_000;

/** The manner and pace of an answer, and after which token it breaks off. */
export interface AnswerPlan {
  readonly manner: AnswerManner;
  readonly firstTokenDelayMs: number;
  /** Delay before each further token. */
  readonly tokenDelayMs: number;
  readonly breaksAfterTokens: number;
  /** Delay between the last token and the break. */
  readonly silenceMs: number;
}

/**
 * The behaviour of a chat model of the sandbox. All but `chat` are bounded drills of provider faults. A drill
 * delays a call by no more than its stated delays, and ends immediately if the call is aborted.
 */
export type SandboxModel =
  | { readonly kind: "answers"; readonly plan: AnswerPlan }
  | { readonly kind: "fails"; readonly failure: () => ProviderFailure }
  /** Answers with text that is not JSON. */
  | { readonly kind: "garbage" };

const STEADY: AnswerPlan = {
  manner: "plain",
  firstTokenDelayMs: 0,
  tokenDelayMs: 0,
  breaksAfterTokens: Number.POSITIVE_INFINITY,
  silenceMs: 0,
};

const MODELS: ReadonlyMap<string, SandboxModel> = new Map([
  ["chat", answers({})],
  ["chat-2026-01-01", answers({})],
  ["reasoning", answers({ manner: "reasoning" })],
  ["refusal", answers({ manner: "refusal" })],
  ["slow", answers({ firstTokenDelayMs: SLOW_TOKEN_DELAY_MS, tokenDelayMs: SLOW_TOKEN_DELAY_MS })],
  ["slow-first-token", answers({ firstTokenDelayMs: FIRST_TOKEN_DELAY_MS })],
  ["stall", answers({ breaksAfterTokens: TOKENS_BEFORE_BREAK, silenceMs: STALL_MS })],
  ["cut", answers({ breaksAfterTokens: TOKENS_BEFORE_BREAK })],
  ["garbage", { kind: "garbage" }],
  ["error-429", fails("rate_limited", 429, "the sandbox rate-limits this model")],
  ["error-500", fails("unavailable", 500, "the sandbox fails this model")],
  // Anthropic's status for an overload.
  ["overloaded", fails("unavailable", 529, "the sandbox is overloaded for this model")],
]);

function answers(plan: Partial<AnswerPlan>): SandboxModel {
  return { kind: "answers", plan: { ...STEADY, ...plan } };
}

function fails(kind: "rate_limited" | "unavailable", status: number, what: string): SandboxModel {
  const wait = kind === "rate_limited" && { retryAfterMs: DRILL_RETRY_AFTER_MS };
  const failure = () => new ProviderFailure(kind, what, { status, ...wait });
  return { kind: "fails", failure };
}

/** Returns a chat model. Throws ProviderFailure if the sandbox has no such model. */
export function sandboxModel(name: string): SandboxModel {
  const model = MODELS.get(name);
  if (model === undefined) throw unknownModel(name);
  return model;
}

export function unknownModel(name: string, kind = "chat"): ProviderFailure {
  const message = `the sandbox has no ${kind} model "${name}"`;
  return new ProviderFailure("misconfigured", message, { status: 404 });
}
