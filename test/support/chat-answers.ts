import {
  type ChatAnswer,
  type ChatEvent,
  type ClientCompletion,
  nextPiece,
  type ReadOptions,
  type TypedCompletion,
} from "../../src/providers/interface.ts";
import { CompletionRender } from "../../src/providers/thread-work.ts";
import { streamOf, wholeOf } from "../../src/providers/transport/call-failures.ts";

const UNCHANGED = new CompletionRender(import.meta.url, (completion) => completion);

/** A short answer in typed form. */
export async function typedOf(answer: ChatAnswer): Promise<TypedCompletion> {
  return wholeOf(answer).render(UNCHANGED, undefined);
}

/** An answer in OpenAI's format, as it passes through. */
export async function passedOf(
  answer: ChatAnswer,
  options: ReadOptions,
): Promise<ClientCompletion> {
  return wholeOf(answer).passThrough!(options);
}

/** All events of a stream. */
export async function eventsIn(answer: ChatAnswer): Promise<ChatEvent[]> {
  const reader = streamOf(answer).events({ id: "req_0123456789abcdef" });
  const events: ChatEvent[] = [];
  for (;;) {
    const batch = await nextPiece(reader);
    if (batch === undefined) return events;
    events.push(...batch);
  }
}
