import { createHash } from "node:crypto";

export interface StreamedForm {
  readonly body: ReadableStream<Uint8Array>;
  readonly contentType: string;
  readonly bytes: number;
  /** SHA-256 of the file, hex; known when all of it was sent. */
  hash(): string;
}

export interface StreamedFormOptions {
  readonly purpose: string;
  readonly fileBytes: number;
  /** The file is this again and again, up to its length. */
  readonly pattern: Uint8Array;
  /** Called before each piece, with how much of the file was sent; holds it back until it resolves. */
  readonly before?: (sentBytes: number) => Promise<void> | void;
  readonly isPurposeLast?: boolean;
}

const BOUNDARY = "----form-of-a-test";

/** A form whose file is made as it is sent, so that it need not be held in memory. */
export function streamedForm(options: StreamedFormOptions): StreamedForm {
  const { fileBytes, pattern } = options;
  const purpose = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n${options.purpose}\r\n`;
  const heading = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="large.bin"\r\nContent-Type: application/octet-stream\r\n\r\n`;
  const end = `--${BOUNDARY}--\r\n`;
  const [head, tail] = options.isPurposeLast
    ? [heading, `\r\n${purpose}${end}`]
    : [purpose + heading, `\r\n${end}`];
  const digest = createHash("sha256");
  let hex: string | undefined;
  async function* pieces(): AsyncGenerator<Uint8Array> {
    yield Buffer.from(head);
    for (let sent = 0; sent < fileBytes; ) {
      await options.before?.(sent);
      const piece = pattern.slice(0, Math.min(pattern.byteLength, fileBytes - sent));
      digest.update(piece);
      sent += piece.byteLength;
      yield piece;
    }
    await options.before?.(fileBytes);
    yield Buffer.from(tail);
  }
  const iterator = pieces();
  return {
    contentType: `multipart/form-data; boundary=${BOUNDARY}`,
    bytes: head.length + fileBytes + tail.length,
    hash: () => (hex ??= digest.digest("hex")),
    body: new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const { value, done } = await iterator.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
      },
      { highWaterMark: 0 },
    ),
  };
}

/** Sends it; fetch sends a stream in chunks, without telling its length. */
export function sendStreamed(
  baseUrl: string,
  key: string,
  form: StreamedForm,
  signal?: AbortSignal,
): Promise<Response> {
  return fetch(`${baseUrl}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": form.contentType },
    body: form.body,
    signal,
  });
}
