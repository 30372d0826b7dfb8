/**
 * Bun sends the head of an answer that was waited for with a system call for each name, value and line
 * end where its body begins with more than 16 KB in one piece; in smaller pieces all of it goes out at once.
 */
const MAX_PIECE_BYTES = 12_288;

export function enqueueInPieces(
  controller: ReadableStreamDefaultController<Uint8Array>,
  bytes: Uint8Array,
): void {
  if (bytes.length <= MAX_PIECE_BYTES) {
    controller.enqueue(bytes);
    return;
  }
  for (let at = 0; at < bytes.length; at += MAX_PIECE_BYTES) {
    controller.enqueue(bytes.subarray(at, at + MAX_PIECE_BYTES));
  }
}

/** Up to this size a body is handed to its socket at once: above, what a slow client leaves is kept here. */
const MAX_DIRECT_BYTES = 262_144;

/** The body of an answer that is there as a whole. */
export function bodyInPieces(body: string | Uint8Array): BodyInit {
  const sizeBytes = typeof body === "string" ? Buffer.byteLength(body) : body.length;
  if (sizeBytes <= MAX_PIECE_BYTES) return body as BodyInit;
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  if (sizeBytes <= MAX_DIRECT_BYTES) return writtenDirectly(bytes);
  return new ReadableStream<Uint8Array>({
    start(controller) {
      enqueueInPieces(controller, bytes);
      controller.close();
    },
  });
}

/** A stream without the queue, the reader and the promises that others have between them and a socket. */
function writtenDirectly(bytes: Uint8Array): ReadableStream<Uint8Array> {
  const source: Bun.DirectUnderlyingSource<Uint8Array> = {
    type: "direct",
    pull(controller) {
      let written: number | Promise<number> = 0;
      for (let at = 0; at < bytes.length; at += MAX_PIECE_BYTES) {
        written = controller.write(bytes.subarray(at, at + MAX_PIECE_BYTES));
      }
      // Ended while its client reads nothing, an answer makes room for the next request of the connection,
      // and so for answers without number.
      if (written instanceof Promise) return written.then(() => void controller.end());
      controller.end();
      return undefined;
    },
  };
  // The types of the platform know nothing of this kind, which is Bun's own.
  return new ReadableStream(source as object as UnderlyingDefaultSource<Uint8Array>);
}
