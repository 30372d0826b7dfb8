const END_OF_HEAD = "\r\n\r\n";
const CONTENT_LENGTH = /\r\ncontent-length: *(\d+)/i;

/** Cuts a connection's bytes into requests with a content length; all that the benchmark's clients send. */
export class RequestReader {
  readonly #onRequest: (path: string, body: Buffer) => void;
  #pending: Buffer = Buffer.alloc(0);

  constructor(onRequest: (path: string, body: Buffer) => void) {
    this.#onRequest = onRequest;
  }

  /** The bytes may be reused by the caller once this returns. */
  push(bytes: Buffer): void {
    let buffer = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    while (buffer.length > 0) {
      const headEnd = buffer.indexOf(END_OF_HEAD);
      if (headEnd < 0) break;
      const head = buffer.toString("latin1", 0, headEnd);
      const bodyStart = headEnd + END_OF_HEAD.length;
      const bodyEnd = bodyStart + Number(CONTENT_LENGTH.exec(head)?.[1] ?? 0);
      if (buffer.length < bodyEnd) break;
      const pathStart = head.indexOf(" ") + 1;
      this.#onRequest(
        head.slice(pathStart, head.indexOf(" ", pathStart)),
        buffer.subarray(bodyStart, bodyEnd),
      );
      buffer = buffer.subarray(bodyEnd);
    }
    this.#pending = Buffer.from(buffer);
  }
}
