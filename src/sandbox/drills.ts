import { ProviderFailure } from "../providers/interface.ts";
import type { AnswerManner } from "./plan-answer.ts";

/** The Retry-After of `error-429`. */
export const DRILL_RETRY_AFTER_MS = 1_000;
/** Before each token of `slow`. */
export const SLOW_TOKEN_DELAY_MS = 50;
/** Before the first token of `slow-first-token`. */
export const FIRST_TOKEN_DELAY_MS = 5_000;
/** The tokens of `cut` and `stall` that arrive. */
export const TOKENS_BEFORE_BREAK = 3;
/** How long `stall` is silent before it breaks off. */
export const STALL_MS = 30_000;

/** The manner of an answer, its pace, and where it breaks off. */
export interface AnswerPlan {
  readonly manner: AnswerManner;
  readonly firstTokenDelayMs: number;
  /** Before each further token. */
  readonly tokenDelayMs: number;
  readonly breaksAfterTokens: number;
  /** Between the last token and the break. */
  readonly silenceMs: number;
}

/**
 * What a chat model of the sandbox does. All but `chat` are drills of what providers do, each with a
 * bound: a drill holds no call longer than its stated delays, and ends at once when its call is aborted.
 */
export type SandboxModel =
  | { readonly kind: "answers"; readonly plan: AnswerPlan }
  | { readonly kind: "fails"; readonly failure: () => ProviderFailure }
  /** Answers with what is no JSON. */
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
  ["error-429", fails("rate_limited", 429, "the sandbox refuses this model for its rate")],
  ["error-500", fails("unavailable", 500, "the sandbox fails this model")],
  // The status that Anthropic has for it.
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

/** Throws ProviderFailure where the sandbox has no such chat model. */
export function sandboxModel(name: string): SandboxModel {
  const model = MODELS.get(name);
  if (model === undefined) throw unknownModel(name);
  return model;
}

export function unknownModel(name: string, kind = "chat"): ProviderFailure {
  const message = `the sandbox has no ${kind} model "${name}"`;
  return new ProviderFailure("misconfigured", message, { status: 404 });
}
