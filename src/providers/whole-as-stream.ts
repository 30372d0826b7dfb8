import type { ChatEvent, PieceReader, TypedCompletion, TypedStream } from "./interface.ts";

/** A stream of events that are there already. */
export function readyStream(events: readonly ChatEvent[]): TypedStream {
  return { kind: "events", reader: () => new ReadyEvents(events) };
}

class ReadyEvents implements PieceReader<readonly ChatEvent[]> {
  #events: readonly ChatEvent[] | undefined;

  constructor(events: readonly ChatEvent[]) {
    this.#events = events;
  }

  get isOver(): boolean {
    return this.#events === undefined;
  }

  async read(): Promise<{ done: boolean; value?: readonly ChatEvent[] }> {
    const value = this.#events;
    this.#events = undefined;
    return value === undefined ? { done: true } : { done: false, value };
  }

  async cancel(): Promise<void> {
    this.#events = undefined;
  }
}

/** A whole answer, which some servers give to a request for a stream, as the events of one. */
export function eventsOfCompletion({ choices, usage }: TypedCompletion): ChatEvent[] {
  const events = choices.flatMap((one, choice): ChatEvent[] => {
    const { finish: reason, stopSequence } = one;
    const end = stopSequence === undefined ? { reason } : { reason, stopSequence };
    const finish: ChatEvent = { type: "finish", choice, ...end };
    if (one.pieces !== undefined) return [...one.pieces, finish];
    const { text, reasoning = "", reasoningDetails: details = [], refusal, annotations } = one;
    const said: ChatEvent[] = [];
    if (reasoning !== "" || details.length > 0) {
      said.push({ type: "reasoning", choice, text: reasoning, details });
    }
    if (text !== undefined || annotations !== undefined) {
      const { logprobs } = one;
      said.push({
        type: "text",
        choice,
        text: text ?? "",
        ...(annotations !== undefined && { annotations }),
        ...(logprobs !== undefined && { logprobs }),
      });
    }
    for (const url of one.images ?? []) said.push({ type: "image", choice, url });
    if (refusal !== undefined) said.push({ type: "refusal", choice, text: refusal });
    for (const [index, call] of (one.toolCalls ?? []).entries()) {
      said.push({ type: "tool_call", choice, index, ...call });
    }
    return [...said, finish];
  });
  return usage === undefined ? events : [...events, { type: "usage", usage }];
}
