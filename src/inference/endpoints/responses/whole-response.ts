import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { FinishReason, TypedChoice } from "../../../providers/interface.ts";
import { AnswerRead, CompletionRender } from "../../../providers/thread-work.ts";
import { answerBytes, choiceOf } from "../../../providers/typed-answers.ts";
import { eventsOfCompletion } from "../../../providers/whole-as-stream.ts";
import { OutputItems, type OutputOptions } from "./output-items.ts";
import type { ResponseRenderer } from "./response-renderer.ts";

/** What a whole answer of the chat call becomes. */
export interface WholeOutput {
  /** JSON of items with commas between them; its bytes where it was too long for the event loop. */
  readonly body: string | Uint8Array;
  readonly finish: FinishReason;
  readonly usage: Usage | undefined;
  /** Unix seconds; set by the event loop. */
  readonly completedAt?: number;
  /** Tokens of the answer, counted here where the usage is undefined. */
  readonly estimatedTokens: number;
  /** Set if it came of a loop of tools. */
  readonly loop?: LoopEnd | undefined;
}

/** How a loop of tools has ended. */
interface LoopEnd {
  readonly renderer: ResponseRenderer;
  /** What it failed with after its first step. */
  readonly failure: unknown;
  /** Of the gateway's own that ended it. */
  readonly limit: string | undefined;
}

export function outputOf(
  choice: TypedChoice,
  usage: Usage | undefined,
  options: OutputOptions,
): WholeOutput {
  const items = new OutputItems(options);
  let bytes = 0;
  for (const event of eventsOfCompletion({ kind: "typed-completion", choices: [choice], usage })) {
    bytes += answerBytes(event);
    items.add(event);
  }
  return {
    body: items.json,
    finish: items.finish ?? "stop",
    usage,
    estimatedTokens: tokensOfBytes(bytes),
  };
}

/** Of a typed answer, in a work thread. */
export const longTypedOutput = new CompletionRender(
  import.meta.url,
  ({ choices, usage }, options: OutputOptions): WholeOutput =>
    outputOf(choices[0]!, usage, options),
);

/** Of an answer of OpenAI's wire in the gateway's form, in a work thread. */
export const longOutput = new AnswerRead(
  import.meta.url,
  (text, options: OutputOptions): WholeOutput =>
    outputOf(choiceOf(JSON.parse(text)), undefined, options),
);
