import { enqueueInPieces } from "../../http/body-pieces.ts";
import type { Transcript } from "./transcript.ts";

/** The client's side of a running stream. What is written before there is a body is kept for it. */
export class StreamOutput {
  readonly #transcript: Transcript | undefined;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Undefined where there is a body, or was one. */
  #early: Uint8Array[] | undefined = [];
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
    for (const output of early) enqueueInPieces(controller, output);
    if (this.#isClosedEarly) controller.close();
  }

  write(output: Uint8Array, nowMs: number): void {
    if (output.length === 0) return;
    if (this.#early !== undefined) this.#early.push(output);
    else if (this.#controller === undefined) return;
    this.lastWriteMs = nowMs;
    this.#transcript?.add(output);
    if (this.#controller === undefined) return;
    enqueueInPieces(this.#controller, output);
  }

  close(): void {
    if (this.#early !== undefined) this.#isClosedEarly = true;
    else this.#controller?.close();
  }
}
