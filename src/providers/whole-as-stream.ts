import type { ChatEvent, ChatStream, PieceReader, TypedCompletion } from "./interface.ts";

/** Returns a stream of existing events. */
export function readyStream(events: readonly ChatEvent[]): ChatStream {
  return { kind: "stream", events: () => new ReadyEvents(events) };
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

/** Returns the events of a whole answer, which some servers send although a stream was requested. */
export function eventsOfCompletion({ choices, usage }: TypedCompletion): ChatEvent[] {
  const events = choices.flatMap((answer, choice): ChatEvent[] => {
    const { finish: reason, stopSequence } = answer;
    const end = stopSequence === undefined ? { reason } : { reason, stopSequence };
    const finish: ChatEvent = { type: "finish", choice, ...end };
    if (answer.pieces !== undefined) return [...answer.pieces, finish];
    const { text, reasoning = "", reasoningDetails: details = [], refusal, annotations } = answer;
    const parts: ChatEvent[] = [];
    if (reasoning !== "" || details.length > 0) {
      parts.push({ type: "reasoning", choice, text: reasoning, details });
    }
    if (text !== undefined || annotations !== undefined) {
      const { logprobs } = answer;
      parts.push({
        type: "text",
        choice,
        text: text ?? "",
        ...(annotations !== undefined && { annotations }),
        ...(logprobs !== undefined && { logprobs }),
      });
    }
    for (const url of answer.images ?? []) parts.push({ type: "image", choice, url });
    if (refusal !== undefined) parts.push({ type: "refusal", choice, text: refusal });
    for (const [index, call] of (answer.toolCalls ?? []).entries()) {
      parts.push({ type: "tool_call", choice, index, ...call });
    }
    return [...parts, finish];
  });
  return usage === undefined ? events : [...events, { type: "usage", usage }];
}
