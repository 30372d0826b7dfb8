import type { NewBatch } from "./batches.ts";
import { streamOf } from "./transport/multipart-upload.ts";

/** Small requests are sent together. */
const PIECE_BYTES = 65_536;

/** What surrounds requests in an upload. */
interface UploadForm {
  readonly begin?: string;
  readonly head: (id: string) => string;
  readonly tail: string;
  readonly between?: string;
  readonly end?: string;
}

/** Requests as they are uploaded, made while they are sent. */
export class BatchUpload {
  #error: { readonly error: unknown } | undefined;
  readonly #requests: NewBatch["requests"];
  readonly #form: UploadForm;

  constructor(requests: NewBatch["requests"], form: UploadForm) {
    this.#requests = requests;
    this.#form = form;
  }

  /** Throws what reading the requests has failed with, which went into no answer. */
  assertRead(): void {
    if (this.#error !== undefined) throw this.#error.error;
  }

  stream(): ReadableStream<Uint8Array> {
    return streamOf(this.#pieces());
  }

  async *#pieces(): AsyncGenerator<Uint8Array> {
    const { begin = "", head, tail, between = "", end = "" } = this.#form;
    const encoder = new TextEncoder();
    let text = begin;
    let isFirst = true;
    try {
      for await (const { id, body } of this.#requests) {
        text += `${isFirst ? "" : between}${head(id)}`;
        isFirst = false;
        if (typeof body === "string") text += body;
        else {
          yield encoder.encode(text);
          // The client frees the memory of what it has sent.
          yield body.slice();
          text = "";
        }
        text += tail;
        if (text.length < PIECE_BYTES) continue;
        yield encoder.encode(text);
        text = "";
      }
    } catch (error) {
      this.#error = { error };
      throw error;
    }
    if (text + end !== "") yield encoder.encode(text + end);
  }
}
