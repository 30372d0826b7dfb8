/** What the benchmark's upstream answers, and the requests that ask for it. */

export const CONTENT_EVENTS = 100;
/** Events of the stream that stays open, before it waits for the client to go away. */
export const OPENING_EVENTS = 5;
export const CHAT_PATH = "/v1/chat/completions";
export const DELAY_MS = 300;
export const LIVE_INTERVAL_MS = 40;
export const LIVE_STREAM_MS = CONTENT_EVENTS * LIVE_INTERVAL_MS;

/**
 * - `instant`: a completion at once, or a stream whose events are separate HTTP chunks in one write
 * - `delayed`: a completion after DELAY_MS
 * - `live`: a stream with an event every LIVE_INTERVAL_MS, each of which holds the time of its sending
 * - `endless`: a stream that goes on slowly until its client goes away
 * - `messages`, `messagesLive`: as `instant` and `live`, but in Anthropic's wire: see messages-wire.ts
 */
export const MODELS = {
  instant: "bench/instant",
  delayed: "bench/delayed",
  live: "bench/live",
  endless: "bench/endless",
  messages: "bench/messages",
  messagesLive: "bench/messages-live",
} as const;

export type ModelName = keyof typeof MODELS;

/** The sizes are those of a short real conversation. */
export function requestBody(model: ModelName, isStream: boolean): string {
  return JSON.stringify({
    model: MODELS[model],
    messages: [
      { role: "system", content: "You are a helpful assistant." },
      { role: "user", content: "Say hello." },
    ],
    max_tokens: 256,
    // The gateway asks the provider for usage in any case. With this both targets relay the same events.
    ...(isStream ? { stream: true, stream_options: { include_usage: true } } : {}),
  });
}

const COMMON = { id: "chatcmpl-bench", created: 1_767_225_600, system_fingerprint: "fp_bench" };
const USAGE = { prompt_tokens: 20, completion_tokens: CONTENT_EVENTS, total_tokens: 120 };

/** Stands before the time of sending, which nothing else in an event of either wire can be mistaken for. */
export const TIME_MARK = '":"@';
/** Milliseconds since 1970 with three decimals: 13 digits, a point, 3 digits. */
export const TIME_LENGTH = 17;

export function timeText(): string {
  return (performance.timeOrigin + performance.now()).toFixed(3);
}

export function completion(model: string): string {
  const message = { role: "assistant", content: "Hello! How can I help you today?", refusal: null };
  return JSON.stringify({
    ...COMMON,
    object: "chat.completion",
    model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: "stop" }],
    usage: USAGE,
  });
}

/** The text of each event: that of a live stream holds a time. */
export function tokenOf(model: string): string {
  const isTimed = model === MODELS.live || model === MODELS.messagesLive;
  return isTimed ? `@${"0".repeat(TIME_LENGTH)}` : " tok";
}

/** The events of a stream, each a whole SSE frame; `[DONE]` is the last one. */
export function streamEvents(model: string, includesUsage: boolean): string[] {
  const token = tokenOf(model);
  const frame = (choices: unknown[], usage?: unknown) =>
    `data: ${JSON.stringify({
      ...COMMON,
      object: "chat.completion.chunk",
      model,
      service_tier: "default",
      choices,
      ...(includesUsage ? { usage: usage ?? null } : {}),
    })}\n\n`;
  const choice = (delta: object, finish: string | null) => [
    { index: 0, delta, logprobs: null, finish_reason: finish },
  ];
  return [
    ...Array.from({ length: CONTENT_EVENTS }, (_, index) =>
      frame(choice({ ...(index === 0 ? { role: "assistant" } : {}), content: token }, null)),
    ),
    frame(choice({}, "stop")),
    ...(includesUsage ? [frame([], USAGE)] : []),
    "data: [DONE]\n\n",
  ];
}

/** Throws where an answer, read whole and checked in every part, is not what the upstream meant. */
export function verifyAnswer(text: string, isStream: boolean): void {
  const wrong = (what: string) => new Error(`the answer ${what}: ${text.slice(-400)}`);
  if (!isStream) {
    const { choices, usage } = JSON.parse(text) as {
      choices: [{ message: { content: string } }];
      usage: { completion_tokens: number };
    };
    if (choices[0].message.content !== "Hello! How can I help you today?") throw wrong("differs");
    if (usage.completion_tokens !== CONTENT_EVENTS) throw wrong("has another usage");
    return;
  }
  const tokens = text.match(/"content":"(?: tok|@\d{13}\.\d{3})"/g)?.length;
  if (tokens !== CONTENT_EVENTS) throw wrong(`has ${tokens} of ${CONTENT_EVENTS} tokens`);
  if (!text.includes(`"completion_tokens":${CONTENT_EVENTS}`)) throw wrong("has no usage");
  if (!text.endsWith("data: [DONE]\n\n")) throw wrong("has no end");
}
