import { MAX_STORED_RESULT_BYTES } from "../idempotency/idempotency.ts";

/** Everything that a stream sent, as bytes kept as characters, as long as that can be stored. */
export class Transcript {
  #text: string | undefined = "";

  add(output: string): void {
    if (this.#text === undefined) return;
    this.#text += output;
    if (this.#text.length > MAX_STORED_RESULT_BYTES) this.#text = undefined;
  }

  /** What was sent, and `ending`. Undefined where it was too much to keep. */
  bytes(ending: string): Uint8Array | undefined {
    return this.#text === undefined ? undefined : Buffer.from(this.#text + ending, "latin1");
  }
}
