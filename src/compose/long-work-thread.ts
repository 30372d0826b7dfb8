import type { LongBodyCall } from "../endpoints/chat-completions/long-body.ts";
import { doLongBodyWork } from "../endpoints/chat-completions/long-body-work.ts";
import { checkLongLine, type LongLineCall } from "../fine-tuning/training-file.ts";
import { serveCalls } from "../lib/work-thread.ts";
import { type LearnLineCall, learnLongLine } from "../providers/sandbox/tuning/learned-answers.ts";
import { doReadAnswer, type ReadAnswerCall, transferOfOutcome } from "../providers/thread-work.ts";

/** The thread for work that would hold the event loop for too long. */
serveCalls<LongBodyCall | LongLineCall | LearnLineCall | ReadAnswerCall>((call) => {
  if (call.kind === "fine-tuning.check-line") return checkLongLine(call);
  if (call.kind === "sandbox.learn-line") return learnLongLine(call);
  if (call.kind === "provider.read-answer") return doReadAnswer(call);
  return doLongBodyWork(call);
}, transferOfOutcome);
