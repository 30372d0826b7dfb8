import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";

/** The counts of an answer so far. In a stream its beginning tells the prompt, and later events all of it. */
export class ReportedUsage {
  #input: number | undefined;
  #read = 0;
  #written = 0;
  #writtenForHour = 0;
  #output: number | undefined;
  #thinking = 0;

  /**
   * Takes what an event tells; counts that cannot be true are not taken. Later counts of the answer replace
   * earlier ones, and those of the prompt do unless they are zero, which is how some servers leave them out.
   * Returns whether it tells those of the answer.
   */
  take(raw: unknown): boolean {
    if (!isFields(raw)) return false;
    this.#input = count(raw.input_tokens) || (this.#input ?? count(raw.input_tokens));
    this.#read = count(raw.cache_read_input_tokens) || this.#read;
    this.#written = count(raw.cache_creation_input_tokens) || this.#written;
    const { cache_creation: byLifetime, output_tokens_details: details } = raw;
    if (isFields(byLifetime)) {
      this.#writtenForHour = count(byLifetime.ephemeral_1h_input_tokens) || this.#writtenForHour;
      const written = (count(byLifetime.ephemeral_5m_input_tokens) ?? 0) + this.#writtenForHour;
      this.#written = Math.max(this.#written, Number.isSafeInteger(written) ? written : 0);
    }
    const output = count(raw.output_tokens);
    this.#output = output ?? this.#output;
    if (isFields(details)) this.#thinking = count(details.thinking_tokens) ?? this.#thinking;
    return output !== undefined;
  }

  /**
   * The same, of an answer's beginning: the tokens of the answer that it counts are those of what follows it,
   * and one in the middle of an answer takes nothing back.
   */
  begin(raw: unknown): boolean {
    return isFields(raw) && this.take({ ...raw, output_tokens: this.#output ?? 0 });
  }

  /** Undefined while prompt and answer are not both known: no prompt is empty. */
  get usage(): Usage | undefined {
    if (this.#input === undefined || this.#output === undefined) return undefined;
    const promptTokens = this.#input + this.#read + this.#written;
    if (promptTokens === 0 || !Number.isSafeInteger(promptTokens)) return undefined;
    const forHour = Math.min(this.#writtenForHour, this.#written);
    return {
      promptTokens,
      cachedPromptTokens: this.#read,
      cacheWriteTokens: this.#written,
      ...(forHour > 0 && { cacheWriteHourTokens: forHour }),
      completionTokens: this.#output,
      reasoningTokens: Math.min(this.#thinking, this.#output),
      estimated: false,
    };
  }
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
