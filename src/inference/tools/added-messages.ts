import type { Candidate } from "../call/routing/plan-route.ts";
import type { StepAnswer } from "./step-answer.ts";
import type { ToolOutcome, ToolSource } from "./tool.ts";

/** A message of the chat call that is added after those of the request. */
export interface AddedMessage {
  readonly role: string;
  readonly [member: string]: unknown;
}

/** Maximum UTF-16 units of the text of one tool output. */
export const MAX_OUTPUT = 131_072;
/** Maximum UTF-16 units of all tool outputs, including images. Each step sends all outputs again. */
export const MAX_ALL_OUTPUTS = 2_097_152;
export const CUT = "\n[The rest was cut.]";
const NO_MORE_RUNS =
  "This was not run: no more tools are run for this response. Answer with the information that you have.";
const IMAGES_OF = "Images that the tool call returned: ";
/** The capability of models that accept images. */
const VISION = "vision";

/** The messages that a loop has added, as JSON. */
export interface AddedState {
  readonly messages: readonly AddedMessage[];
  readonly sources: readonly ToolSource[];
  /** UTF-16 units that further tool outputs can use. */
  readonly outputsLeft: number;
}

function isState(begun: readonly AddedMessage[] | AddedState): begun is AddedState {
  return "messages" in begun;
}

/** The conversation after the request: the model's calls and their outputs. */
export class AddedMessages {
  readonly messages: AddedMessage[];
  /** Sources that the answer can cite. */
  readonly sources: ToolSource[] = [];
  readonly #seesImages: boolean;
  #outputsLeft = MAX_ALL_OUTPUTS;

  /**
   * @param begun calls that ran before the first model call, with their outputs, or the state of an earlier
   * loop
   */
  constructor(
    { terms }: Pick<Candidate, "terms">,
    begun: readonly AddedMessage[] | AddedState = [],
  ) {
    this.#seesImages = terms.capabilities.includes(VISION);
    if (isState(begun)) {
      this.messages = [...begun.messages];
      this.sources.push(...begun.sources);
      this.#outputsLeft = begun.outputsLeft;
    } else this.messages = [...begun];
  }

  get state(): AddedState {
    return { messages: this.messages, sources: this.sources, outputsLeft: this.#outputsLeft };
  }

  /**
   * Adds a step with its tool outputs.
   *
   * @param outcomes results of the first calls; the other calls were not run
   */
  add(step: StepAnswer, outcomes: readonly ToolOutcome[]): void {
    this.messages.push(step.message());
    const images: unknown[] = [];
    for (const [at, { id }] of step.calls.entries()) {
      const outcome = outcomes[at];
      const content = this.#fitting(outcome?.output ?? NO_MORE_RUNS);
      this.messages.push({ role: "tool", tool_call_id: id, content });
      this.sources.push(...(outcome?.sources ?? []));
      const urls = this.#seesImages ? this.#fittingImages(outcome?.images ?? []) : [];
      if (urls.length > 0) images.push({ type: "text", text: IMAGES_OF + id });
      for (const url of urls) images.push({ type: "image_url", image_url: { url } });
    }
    if (images.length > 0) this.messages.push({ role: "user", content: images });
  }

  /** Returns the part of a tool's output that the model is still sent. */
  #fitting(output: string): string {
    const cut = output.slice(0, Math.min(MAX_OUTPUT, this.#outputsLeft)).toWellFormed();
    this.#outputsLeft -= cut.length;
    return cut.length < output.length ? cut + CUT : cut;
  }

  /** Returns the images that the remaining units allow. */
  #fittingImages(images: readonly string[]): readonly string[] {
    return images.filter((url) => {
      if (url.length > this.#outputsLeft) return false;
      this.#outputsLeft -= url.length;
      return true;
    });
  }
}
