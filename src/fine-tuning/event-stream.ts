import { Stream } from "@elysiajs/stream";
import type { FeedItem } from "./event-feed.ts";
import { eventShape } from "./shape.ts";

const KEEPALIVE = ": keepalive\n\n";
/** A weight of zero: "not this" (RFC 9110, section 12.4.2). */
const REFUSED = /^q=0(\.0*)?$/;
const DONE = "data: [DONE]\n\n";

/** Whether a client asks for server-sent events rather than a list. */
export function wantsEventStream(request: Request): boolean {
  const accepted = request.headers.get("accept") ?? "";
  return accepted.split(",").some((range) => {
    const [name, ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    return name === "text/event-stream" && !parameters.some((one) => REFUSED.test(one));
  });
}

/**
 * A feed as server-sent events: one frame an event, with its id, and `[DONE]` once the job has ended.
 * The frames are finished here and the content type is set by hand: of what @elysiajs/stream does with
 * anything else, some comes out unframed and some brings the process down when the client goes.
 */
export function eventStream(feed: AsyncIterable<FeedItem>, onOver: () => void): Response {
  const { value } = new Stream<Uint8Array>(framesOf(feed, onOver));
  return new Response(value as unknown as ReadableStream<Uint8Array<ArrayBuffer>>, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      connection: "keep-alive",
    },
  });
}

async function* framesOf(
  feed: AsyncIterable<FeedItem>,
  onOver: () => void,
): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  try {
    for await (const item of feed) yield encoder.encode(frameOf(item));
  } finally {
    onOver();
  }
}

function frameOf(item: FeedItem): string {
  switch (item.kind) {
    case "event":
      return `id: ${item.event.id}\ndata: ${JSON.stringify(eventShape(item.event))}\n\n`;
    case "quiet":
      return KEEPALIVE;
    case "done":
      return DONE;
  }
}
