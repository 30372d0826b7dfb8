import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { FinishReason } from "../../../providers/interface.ts";
import { CompletionRender } from "../../../providers/thread-work.ts";
import { answerBytes } from "../../../providers/typed-answers.ts";
import { eventsOfCompletion } from "../../../providers/whole-as-stream.ts";
import { OutputItems, type OutputOptions } from "./output-items.ts";
import type { ResponseRenderer } from "./response-renderer.ts";

/** The output of a complete answer. */
export interface WholeOutput {
  /** JSON of items, separated by commas. Bytes if the answer was too long for the event loop. */
  readonly body: string | Uint8Array;
  readonly finish: FinishReason;
  readonly usage: Usage | undefined;
  /** Time of completion in Unix seconds. The event loop sets it. */
  readonly completedAt?: number;
  /** Tokens of the answer, estimated by the gateway. Used if the usage is undefined. */
  readonly estimatedTokens: number;
  /** The end of the tool loop that made the answer. Undefined if no tool loop did. */
  readonly loop?: LoopEnd | undefined;
}

/** The end of a tool loop. */
interface LoopEnd {
  readonly renderer: ResponseRenderer;
  /** The error after the first step, if one occurred. */
  readonly failure: unknown;
  /** The limit of the gateway that ended the loop. */
  readonly limit: string | undefined;
}

/** Renders a whole answer with one choice as output items. */
export const outputRender = new CompletionRender(
  import.meta.url,
  ({ choices: [choice], usage, estimatedTokens }, options: OutputOptions): WholeOutput => {
    const items = new OutputItems(options);
    let bytes = 0;
    for (const event of eventsOfCompletion({ choices: [choice!], usage })) {
      bytes += answerBytes(event);
      items.add(event);
    }
    return {
      body: items.json,
      finish: items.finish ?? "stop",
      usage,
      estimatedTokens: estimatedTokens ?? tokensOfBytes(bytes),
    };
  },
);
