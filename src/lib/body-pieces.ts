/**
 * Largest piece of a response body. If a body begins with more than 16 KB in one piece, Bun sends the response
 * head with a separate system call for each name, value and line end. With smaller pieces it sends all of it in
 * one call.
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

/**
 * Largest body that is written directly to its socket. For larger bodies, a slow client would make the gateway
 * buffer the rest.
 */
const MAX_DIRECT_BYTES = 262_144;

/** Returns the body of a complete answer, in pieces that Bun sends efficiently. */
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

/** Returns a stream that writes to the socket without the queue, reader and promises of an ordinary stream. */
function writtenDirectly(bytes: Uint8Array): ReadableStream<Uint8Array> {
  const source: Bun.DirectUnderlyingSource<Uint8Array> = {
    type: "direct",
    pull(controller) {
      let written: number | Promise<number> = 0;
      for (let at = 0; at < bytes.length; at += MAX_PIECE_BYTES) {
        written = controller.write(bytes.subarray(at, at + MAX_PIECE_BYTES));
      }
      // Ends the stream only after the client has read it. A response that ends earlier would let the next
      // request of the connection start, so a client that reads nothing could queue unlimited answers.
      if (written instanceof Promise) return written.then(() => void controller.end());
      controller.end();
      return undefined;
    },
  };
  // The platform's types do not include this kind of source: only Bun has it.
  return new ReadableStream(source as object as UnderlyingDefaultSource<Uint8Array>);
}
