/** Takes the pieces of an upload: the connection, as the pump sees it. */
export interface UploadSink {
  /** False where no more bytes are taken for now: goOn() is called when they are. */
  sendPiece(bytes: Buffer): boolean;
  uploaded(): void;
  uploadFailed(error: unknown): void;
}

const LAST_CHUNK = Buffer.from("0\r\n\r\n");
const LINE_END = Buffer.from("\r\n");

/**
 * Sends a stream as a body in chunked transfer coding (RFC 9112, section 7.1), one piece in memory at a
 * time: the next one is read when the socket has taken the last.
 */
export class UploadPump {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #sink: UploadSink;
  #isReading = false;
  #hasEnded = false;

  /** @throws TypeError if the stream is already being read */
  constructor(content: ReadableStream<Uint8Array>, sink: UploadSink) {
    this.#reader = content.getReader();
    this.#sink = sink;
  }

  /** Sends until the socket takes no more. */
  goOn(): void {
    if (this.#isReading || this.#hasEnded) return;
    this.#isReading = true;
    this.#run().catch((error: unknown) => {
      if (this.#hasEnded) return;
      this.stop();
      this.#sink.uploadFailed(error);
    });
  }

  /** Ends the reading of the stream as well. */
  stop(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#reader.cancel().catch(() => undefined);
  }

  async #run(): Promise<void> {
    for (let takesMore = true; takesMore; ) {
      const piece = await this.#reader.read();
      if (this.#hasEnded) return;
      if (piece.done) {
        this.#hasEnded = true;
        this.#sink.sendPiece(LAST_CHUNK);
        this.#sink.uploaded();
        return;
      }
      if (piece.value.length > 0) takesMore = this.#sink.sendPiece(chunkOf(piece.value));
    }
    this.#isReading = false;
  }
}

function chunkOf(bytes: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, LINE_END]);
}
