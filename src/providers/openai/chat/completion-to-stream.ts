type Fields = Readonly<Record<string, unknown>>;

/**
 * Some compatible servers ignore `stream: true` and answer with a whole completion. This is the same
 * answer as a stream: one chunk with every choice, one with the usage, `[DONE]`. Undefined when the
 * body is no completion.
 */
export function completionToStream(completion: unknown): ReadableStream<Uint8Array> | undefined {
  if (!isFields(completion) || !Array.isArray(completion.choices)) return undefined;
  const choices = completion.choices.filter(isFields);
  if (choices.length === 0) return undefined;
  const { choices: _, usage, ...head } = completion;
  const shared = { ...head, object: "chat.completion.chunk" };
  const events: unknown[] = [{ ...shared, choices: choices.map(asDelta) }];
  if (isFields(usage)) events.push({ ...shared, choices: [], usage });
  const frames = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const bytes = new TextEncoder().encode(`${frames}data: [DONE]\n\n`);
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.enqueue(bytes);
      controller.close();
    },
  });
}

function asDelta(choice: Fields, position: number): Fields {
  const { message, ...rest } = choice;
  const delta = isFields(message) ? { ...message } : {};
  if (Array.isArray(delta.tool_calls)) {
    delta.tool_calls = delta.tool_calls.map((call, index) =>
      isFields(call) ? { index, ...call } : call,
    );
  }
  return { index: position, ...rest, delta };
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
