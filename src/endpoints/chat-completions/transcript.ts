import { MAX_STORED_RESULT_BYTES } from "../../calls/idempotency/idempotency.ts";

/** Everything that a stream sent, as long as that can be stored. */
export class Transcript {
  #pieces: Uint8Array[] | undefined = [];
  #lengthBytes = 0;

  add(output: Uint8Array): void {
    this.#lengthBytes += output.length;
    if (this.#lengthBytes > MAX_STORED_RESULT_BYTES) this.#pieces = undefined;
    else this.#pieces?.push(output);
  }

  /** What was sent, and `ending`. Undefined where it was too much to keep. */
  bytes(ending: Uint8Array): Uint8Array | undefined {
    return this.#pieces && Buffer.concat([...this.#pieces, ending]);
  }
}
