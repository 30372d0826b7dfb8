import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";

/**
 * Token counts of an answer so far. In a stream the first event reports the prompt, and later events report
 * all counts.
 */
export class ReportedUsage {
  #input: number | undefined;
  #read = 0;
  #written = 0;
  #writtenForHour = 0;
  #output: number | undefined;
  #thinking = 0;

  /**
   * Adopts the counts of an event and skips impossible ones. Later completion counts replace earlier ones.
   * Later prompt counts replace earlier ones unless they are zero, because some servers send zero for a
   * missing count. Returns true if the event counts the completion.
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
   * Adopts the counts of `message_start` like `take`, but not its completion count, which covers only the
   * start. A second `message_start` therefore reverts nothing.
   */
  begin(raw: unknown): boolean {
    return isFields(raw) && this.take({ ...raw, output_tokens: this.#output ?? 0 });
  }

  /**
   * The usage so far. Undefined until both prompt and completion are counted. A prompt of 0 tokens is
   * impossible.
   */
  get usage(): Usage | undefined {
    if (this.#input === undefined || this.#output === undefined) return undefined;
    const promptTokens = this.#input + this.#read + this.#written;
    if (promptTokens === 0 || !Number.isSafeInteger(promptTokens)) return undefined;
    const writtenForHour = Math.min(this.#writtenForHour, this.#written);
    return {
      promptTokens,
      cachedPromptTokens: this.#read,
      cacheWriteTokens: this.#written,
      ...(writtenForHour > 0 && { cacheWriteHourTokens: writtenForHour }),
      completionTokens: this.#output,
      reasoningTokens: Math.min(this.#thinking, this.#output),
      estimated: false,
    };
  }
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
