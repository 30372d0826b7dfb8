import { createParser, type EventSourceMessage } from "eventsource-parser";

/** Reads a stream of server-sent events to its end. An error in `onEvent` ends it too. */
export async function readServerEvents(
  response: Response,
  onEvent: (event: EventSourceMessage) => void,
): Promise<void> {
  const parser = createParser({ onEvent });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parser.feed(value);
  }
}
