import type { ScreenCall } from "../../inference/call/guard/call-guard.ts";
import { longChatForm } from "../../inference/endpoints/chat-completions/long-chat-work.ts";
import type { LongBodyCall } from "../../inference/endpoints/long-bodies.ts";
import { LongBodyWork } from "../../inference/endpoints/long-body-work.ts";
import type { CountTokensCall } from "../../inference/endpoints/messages/long-messages.ts";
import {
  countPromptTokens,
  longCountForm,
  longMessagesForm,
} from "../../inference/endpoints/messages/long-messages-work.ts";
import type { CountInputCall } from "../../inference/endpoints/responses/long-responses.ts";
import {
  countInputTokens,
  longResponsesForms,
} from "../../inference/endpoints/responses/long-responses-work.ts";
import {
  type MeasureSoundCall,
  measureOpenFile,
} from "../../inference/endpoints/transcriptions/measure-file.ts";
import { rulesFor } from "../../inference/guardrails/screening/guardrail.ts";
import { screenJson } from "../../inference/guardrails/screening/screen-json.ts";
import { checkLongLine, type LongLineCall } from "../../jobs/fine-tuning/training-file.ts";
import { serveCalls } from "../../lib/work-thread.ts";
import {
  doReadAnswer,
  type ReadAnswerCall,
  transferOfOutcome,
} from "../../providers/thread-work.ts";
import { type LearnLineCall, learnLongLine } from "../../sandbox/tuning/learned-answers.ts";

const longBodies = new LongBodyWork({
  chat: longChatForm,
  messages: longMessagesForm,
  "messages.count": longCountForm,
  ...longResponsesForms,
});

/** Runs work that would block the event loop for too long. */
serveCalls<
  | LongBodyCall
  | LongLineCall
  | LearnLineCall
  | ReadAnswerCall
  | CountTokensCall
  | CountInputCall
  | MeasureSoundCall
  | ScreenCall
>((call) => {
  if (call.kind === "messages.count") return countPromptTokens(call);
  if (call.kind === "responses.count") return countInputTokens(call);
  if (call.kind === "fine-tuning.check-line") return checkLongLine(call);
  if (call.kind === "screen.json")
    return screenJson(call.value, rulesFor(call.guardrails, call.on));
  if (call.kind === "sound.measure") return measureOpenFile(call);
  if (call.kind === "sandbox.learn-line") return learnLongLine(call);
  if (call.kind === "provider.read-answer") return doReadAnswer(call);
  return longBodies.do(call);
}, transferOfOutcome);
