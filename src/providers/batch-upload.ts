import type { NewBatch } from "./batches.ts";
import { streamOf } from "./transport/multipart-upload.ts";

/** Characters that are collected before they are sent, so that small requests share a piece. */
const PIECE_CHARACTERS = 65_536;

/** The text around the requests in an upload. */
interface UploadForm {
  readonly begin?: string;
  readonly head: (id: string) => string;
  readonly tail: string;
  readonly between?: string;
  readonly end?: string;
}

/** The body of a batch upload. It is built while it is sent. */
export class BatchUpload {
  #error: { readonly error: unknown } | undefined;
  readonly #requests: NewBatch["requests"];
  readonly #form: UploadForm;

  constructor(requests: NewBatch["requests"], form: UploadForm) {
    this.#requests = requests;
    this.#form = form;
  }

  /** Throws the error that reading the requests failed with. The upload itself does not report that error. */
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
          // The HTTP client frees the memory of bytes that it has sent, so it gets a copy.
          yield body.slice();
          text = "";
        }
        text += tail;
        if (text.length < PIECE_CHARACTERS) continue;
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
