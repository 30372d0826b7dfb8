import type { StatementEffect } from "../../../../db/ledger/effects.ts";
import type { NewResponse } from "../../../../db/queries/responses.ts";
import type { AcceptedResponse, AdmittedResponse } from "./accepted.ts";
import { nameOfResponse, responseId } from "./response-json.ts";
import type { ResponseStore } from "./response-store.ts";

/** The stored parts of a complete response, besides its input: see `withOutput`. */
export interface ResponseContents {
  readonly head: string;
  readonly output: string | Uint8Array;
}

/** Stores responses that can be continued. */
export class ResponseStoreWriter {
  readonly #store: ResponseStore;
  /** Lengths in bytes of inputs that are written before their answer. */
  readonly #inputs = new WeakMap<AcceptedResponse, Promise<number>>();

  constructor(store: ResponseStore) {
    this.#store = store;
  }

  /**
   * Starts to write a long input when a provider answers, because the thread releases the input once the
   * answer has begun. A short input is written with the answer.
   */
  noteAnswered(admitted: AdmittedResponse): void {
    const { facts, isLong } = admitted.request;
    if (!facts.isStored || !isLong || this.#inputs.has(admitted.request)) return;
    const writing = this.#writeInput(admitted);
    // The answer reports the error when it waits for the input. An answer that never ends needs no input.
    writing.catch(() => undefined);
    this.#inputs.set(admitted.request, writing);
  }

  /** Writes the input of a response that clients can read before it is answered. */
  async storeInput(admitted: AdmittedResponse): Promise<void> {
    const writing = this.#writeInput(admitted);
    this.#inputs.set(admitted.request, writing);
    await writing;
  }

  /**
   * Stores the answer before it is charged. Returns the effect that makes it visible, or undefined if the
   * response is not stored.
   */
  async storeAnswer(
    admitted: AdmittedResponse,
    { head, output }: ResponseContents,
  ): Promise<StatementEffect | undefined> {
    const { facts, position } = admitted.request;
    if (!facts.isStored) return undefined;
    const response = rowOf(admitted);
    const encoder = new TextEncoder();
    const outputBytes = typeof output === "string" ? encoder.encode(output) : output;
    const writing = this.#inputs.get(admitted.request);
    let inputBytes: number;
    if (writing === undefined) {
      const input = await admitted.request.storedInput(nameOfResponse(admitted.requestId));
      inputBytes = input.length;
      const contents = [
        ["head", encoder.encode(head)],
        ["input", input],
        ["output", outputBytes],
      ] as const;
      const { stream } = admitted.request.fields;
      await this.#store.write(response, contents, { isAll: stream !== true });
    } else {
      inputBytes = await writing;
      await this.#store.write(response, [
        ["head", encoder.encode(head)],
        ["output", outputBytes],
      ]);
    }
    const chainBytes = (position?.chainBytes ?? 0) + inputBytes + outputBytes.length;
    return this.#store.keep({
      id: response.id,
      storedBytes: inputBytes + outputBytes.length,
      chainBytes,
      conversationId: position?.conversationId,
    });
  }

  async #writeInput(admitted: AdmittedResponse): Promise<number> {
    const input = await admitted.request.storedInput(nameOfResponse(admitted.requestId));
    await this.#store.write(rowOf(admitted), [["input", input]]);
    return input.length;
  }
}

function rowOf({ requestId, hold, request: { position } }: AdmittedResponse): NewResponse {
  const id = responseId(nameOfResponse(requestId));
  return {
    id,
    organizationId: hold.organizationId,
    keyId: hold.keyId,
    previousId: position?.previousId ?? null,
    chainId: position?.chainId ?? id,
  };
}
