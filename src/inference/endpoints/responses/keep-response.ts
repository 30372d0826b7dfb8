import type { StatementEffect } from "../../../../db/ledger/effects.ts";
import type { NewResponse } from "../../../../db/queries/responses.ts";
import type { AcceptedResponse, AdmittedResponse } from "./accepted.ts";
import { nameOfResponse, responseId } from "./response-json.ts";
import type { ResponseStore } from "./response-store.ts";

/** What of a whole response is stored besides its input: see `withOutput`. */
export interface ResponseContents {
  readonly head: string;
  readonly output: string | Uint8Array;
}

/** Writes the responses that can be continued. */
export class ResponseStoreWriter {
  readonly #store: ResponseStore;
  /** Inputs that are written before their answers have come: their lengths in bytes. */
  readonly #inputs = new WeakMap<AcceptedResponse, Promise<number>>();

  constructor(store: ResponseStore) {
    this.#store = store;
  }

  /**
   * A provider answers: writes a long input, which the thread gives up once the answer has begun. A short one is
   * written with the answer.
   */
  noteAnswered(admitted: AdmittedResponse): void {
    const { facts, isLong } = admitted.request;
    if (!facts.isStored || !isLong || this.#inputs.has(admitted.request)) return;
    const writing = this.#writeInput(admitted);
    // Reported where the answer waits for it; an answer that never ends needs no input.
    writing.catch(() => undefined);
    this.#inputs.set(admitted.request, writing);
  }

  /** Writes the input of a response that is read before it is answered. */
  async keepInput(admitted: AdmittedResponse): Promise<void> {
    const writing = this.#writeInput(admitted);
    this.#inputs.set(admitted.request, writing);
    await writing;
  }

  /** Writes what is kept of an answer. Undefined where nothing is. */
  async keep(
    admitted: AdmittedResponse,
    { head, output }: ResponseContents,
  ): Promise<StatementEffect | undefined> {
    const { facts, place } = admitted.request;
    if (!facts.isStored) return undefined;
    const response = rowOf(admitted);
    const encoder = new TextEncoder();
    const said = typeof output === "string" ? encoder.encode(output) : output;
    const writing = this.#inputs.get(admitted.request);
    let inputBytes: number;
    if (writing === undefined) {
      const input = await admitted.request.storedInput(nameOfResponse(admitted.requestId));
      inputBytes = input.length;
      const contents = [
        ["head", encoder.encode(head)],
        ["input", input],
        ["output", said],
      ] as const;
      const { stream } = admitted.request.fields;
      await this.#store.write(response, contents, { isAll: stream !== true });
    } else {
      inputBytes = await writing;
      await this.#store.write(response, [
        ["head", encoder.encode(head)],
        ["output", said],
      ]);
    }
    const chainBytes = (place?.chainBytes ?? 0) + inputBytes + said.length;
    return this.#store.keep({
      id: response.id,
      ownBytes: inputBytes + said.length,
      chainBytes,
      conversationId: place?.conversationId,
    });
  }

  async #writeInput(admitted: AdmittedResponse): Promise<number> {
    const input = await admitted.request.storedInput(nameOfResponse(admitted.requestId));
    await this.#store.write(rowOf(admitted), [["input", input]]);
    return input.length;
  }
}

function rowOf({ requestId, hold, request: { place } }: AdmittedResponse): NewResponse {
  const id = responseId(nameOfResponse(requestId));
  return {
    id,
    organizationId: hold.organizationId,
    previousId: place?.previousId ?? null,
    chainId: place?.chainId ?? id,
  };
}
