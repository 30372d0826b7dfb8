import { enqueueInPieces } from "../../lib/body-pieces.ts";
import type { Transcript } from "./transcript.ts";

/** The client's side of a running stream. What is written before there is a body is kept for it. */
export class StreamOutput {
  readonly #transcript: Transcript | undefined;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Bytes kept as characters; undefined where there is a body, or was one. */
  #early: string | undefined = "";
  #isClosedEarly = false;
  lastWriteMs: number;

  constructor(nowMs: number, transcript: Transcript | undefined) {
    this.lastWriteMs = nowMs;
    this.#transcript = transcript;
  }

  get hasBody(): boolean {
    return this.#controller !== undefined;
  }

  /** The body asks for more with `pull`, and tells with `cancel` that the client is gone. */
  body(pull: () => Promise<void>, cancel: () => void): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => this.#begin(controller),
        pull,
        cancel: () => {
          this.#controller = undefined;
          cancel();
        },
      },
      { highWaterMark: 0 },
    );
  }

  #begin(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
    const early = this.#early!;
    this.#early = undefined;
    if (early !== "") enqueueInPieces(controller, Buffer.from(early, "latin1"));
    if (this.#isClosedEarly) controller.close();
  }

  write(output: string, nowMs: number): void {
    if (output === "") return;
    if (this.#early !== undefined) this.#early += output;
    else if (this.#controller === undefined) return;
    this.lastWriteMs = nowMs;
    this.#transcript?.add(output);
    if (this.#controller === undefined) return;
    enqueueInPieces(this.#controller, Buffer.from(output, "latin1"));
  }

  close(): void {
    if (this.#early !== undefined) this.#isClosedEarly = true;
    else this.#controller?.close();
  }

  /** Everything, where it was closed before there was a body; there will be none then. */
  whole(): Uint8Array | undefined {
    if (!this.#isClosedEarly || this.#early === undefined) return undefined;
    const early = Buffer.from(this.#early, "latin1");
    this.#early = undefined;
    return early;
  }
}
