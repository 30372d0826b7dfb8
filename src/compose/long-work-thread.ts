import { longChatForm } from "../endpoints/chat-completions/long-chat-work.ts";
import type { LongBodyCall } from "../endpoints/long-bodies.ts";
import { LongBodyWork } from "../endpoints/long-body-work.ts";
import type { CountTokensCall } from "../endpoints/messages/long-messages.ts";
import {
  countPromptTokens,
  longCountForm,
  longMessagesForm,
} from "../endpoints/messages/long-messages-work.ts";
import type { CountInputCall } from "../endpoints/responses/long-responses.ts";
import {
  countInputTokens,
  longResponsesForms,
} from "../endpoints/responses/long-responses-work.ts";
import {
  type MeasureSoundCall,
  measureOpenFile,
} from "../endpoints/transcriptions/measure-file.ts";
import { checkLongLine, type LongLineCall } from "../fine-tuning/training-file.ts";
import { serveCalls } from "../lib/work-thread.ts";
import { type LearnLineCall, learnLongLine } from "../providers/sandbox/tuning/learned-answers.ts";
import { doReadAnswer, type ReadAnswerCall, transferOfOutcome } from "../providers/thread-work.ts";

const longBodies = new LongBodyWork({
  chat: longChatForm,
  messages: longMessagesForm,
  "messages.count": longCountForm,
  ...longResponsesForms,
});

/** The thread for work that would hold the event loop for too long. */
serveCalls<
  | LongBodyCall
  | LongLineCall
  | LearnLineCall
  | ReadAnswerCall
  | CountTokensCall
  | CountInputCall
  | MeasureSoundCall
>((call) => {
  if (call.kind === "messages.count") return countPromptTokens(call);
  if (call.kind === "responses.count") return countInputTokens(call);
  if (call.kind === "fine-tuning.check-line") return checkLongLine(call);
  if (call.kind === "sound.measure") return measureOpenFile(call);
  if (call.kind === "sandbox.learn-line") return learnLongLine(call);
  if (call.kind === "provider.read-answer") return doReadAnswer(call);
  return longBodies.do(call);
}, transferOfOutcome);
