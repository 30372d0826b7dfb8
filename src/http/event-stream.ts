import { Stream } from "@elysiajs/stream";

/**
 * Returns a response with server-sent events, one whole frame for each text. Frames are read without waiting for the
 * client, so their source must be small or slow. It ends at the next frame after the client disconnects.
 *
 * Frames are encoded and the content type is set here, because @elysiajs/stream handles other values badly: it leaves
 * some unframed, and some end the process when the client disconnects.
 */
export function eventStream(
  frames: AsyncIterable<string>,
  headers: Readonly<Record<string, string>>,
): Response {
  const { value } = new Stream<Uint8Array>(encoded(frames));
  return new Response(value as unknown as ReadableStream<Uint8Array<ArrayBuffer>>, {
    headers: { "content-type": "text/event-stream; charset=utf-8", ...headers },
  });
}

async function* encoded(frames: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for await (const frame of frames) yield encoder.encode(frame);
}
