import { close, open, read } from "node:fs";

/**
 * A file that is being read. Plain descriptors, because a handle of the platform that is collected before
 * it is closed ends the process, and nobody closes the stream of a client that left before it was asked for.
 */
export class OpenFile {
  readonly #descriptor: number;
  #isClosed = false;

  private constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  static at(path: string): Promise<OpenFile> {
    return new Promise((resolve, reject) => {
      open(path, "r", (error, descriptor) => {
        if (error) reject(error);
        else resolve(new OpenFile(descriptor));
      });
    });
  }

  /** Resolves with how many bytes were read into the start of the buffer; 0 at the end of the file. */
  read(buffer: Uint8Array, lengthBytes: number, position: number): Promise<number> {
    return new Promise((resolve, reject) => {
      read(this.#descriptor, buffer, 0, lengthBytes, position, (error, bytesRead) => {
        if (error) reject(error);
        else resolve(bytesRead);
      });
    });
  }

  /** A second time changes nothing. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    close(this.#descriptor, () => {});
  }
}

const abandoned = new FinalizationRegistry((file: OpenFile) => file.close());

/** Closes the file when nobody can read the stream any more. */
export function closeWith(stream: ReadableStream<Uint8Array>, file: OpenFile): void {
  abandoned.register(stream, file);
}
