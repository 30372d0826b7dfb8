import { type ChatCall, type LongCallBody, ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { planAnswer, type SandboxAnswer } from "./plan-answer.ts";
import { type LearnedAnswer, LearnedAnswers } from "./tuning/learned-answers.ts";
import { aborted } from "./wait.ts";

interface LongOptions {
  /** What the tuned model has learned. */
  readonly learned: readonly LearnedAnswer[] | undefined;
}

/** No error of ours passes between threads as itself. */
type LongOutcome =
  | { readonly answer: SandboxAnswer }
  | { readonly refusal: Pick<ProviderFailure, "kind" | "message" | "status" | "param"> };

/** What a thread makes of a long body. */
export function planLongAnswer(body: ChatCall["body"], { learned }: LongOptions): LongOutcome {
  try {
    return { answer: planAnswer(body, learned && new LearnedAnswers(learned)) };
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    const { kind, message, status, param } = error;
    return { refusal: { kind, message, status, param } };
  }
}

/** Has a thread plan the answer to a long body. Throws ProviderFailure as `planAnswer` does. */
export async function planElsewhere(
  body: LongCallBody,
  learned: LearnedAnswers | undefined,
  signal: AbortNotice,
): Promise<SandboxAnswer> {
  const options: LongOptions = { learned: learned?.learned };
  let outcome: LongOutcome;
  try {
    outcome = await body.render<LongOutcome>("sandbox", options, signal);
  } catch (error) {
    throw signal.aborted ? aborted(signal) : error;
  }
  if ("answer" in outcome) return outcome.answer;
  const { kind, message, status, param } = outcome.refusal;
  throw new ProviderFailure(kind, message, { param, ...(status !== undefined && { status }) });
}
