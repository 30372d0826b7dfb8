/** Providers of two wires that answer a chat, or fail in one of the ways of `FAULTS`, as the model's name says. */

export type WireName = "openai" | "anthropic";

/** What a provider does instead of an answer. `refused` never reaches it: its port is closed. */
export type Fault =
  | "refused"
  | 401
  | 429
  | 500
  | 529
  | "silent"
  | "garbage"
  | "cut behind it"
  | "silent behind it"
  | "garbage behind it";

/** Of the 429. Longer than the gateway lets a caller wait. */
export const RETRY_AFTER_SECONDS = 7;
/** What a whole answer says, and what of it comes before a fault behind the first event. */
export const ANSWER = "the answer";
export const BEGINNING = "the";
/** What a whole answer of each wire reports. */
export const USAGE = {
  openai: { prompt: 11, completion: 5 },
  anthropic: { prompt: 13, completion: 7 },
} as const;

interface FakeWire {
  readonly path: string;
  readonly whole: object;
  /** Up to the first text. */
  readonly beginning: readonly object[];
  readonly rest: readonly (object | string)[];
  error(status: number): object;
}

const chunk = (delta: object, finish_reason: string | null = null) => ({
  object: "chat.completion.chunk",
  choices: [{ index: 0, delta, finish_reason }],
});
const OPENAI_USAGE = {
  prompt_tokens: USAGE.openai.prompt,
  completion_tokens: USAGE.openai.completion,
  total_tokens: USAGE.openai.prompt + USAGE.openai.completion,
};
const textDelta = (text: string) => ({
  type: "content_block_delta",
  index: 0,
  delta: { type: "text_delta", text },
});
const input_tokens = USAGE.anthropic.prompt;
const output_tokens = USAGE.anthropic.completion;

const PROVIDER_FACTORIES: Readonly<Record<WireName, FakeWire>> = {
  openai: {
    path: "/chat/completions",
    whole: {
      object: "chat.completion",
      choices: [
        { index: 0, message: { role: "assistant", content: ANSWER }, finish_reason: "stop" },
      ],
      usage: OPENAI_USAGE,
    },
    beginning: [chunk({ role: "assistant", content: BEGINNING })],
    rest: [
      chunk({ content: ANSWER.slice(BEGINNING.length) }),
      chunk({}, "stop"),
      { object: "chat.completion.chunk", choices: [], usage: OPENAI_USAGE },
      "[DONE]",
    ],
    error: (status) => ({ error: { message: `failed with ${status}`, type: "server_error" } }),
  },
  anthropic: {
    path: "/messages",
    whole: {
      type: "message",
      role: "assistant",
      content: [{ type: "text", text: ANSWER }],
      stop_reason: "end_turn",
      usage: { input_tokens, output_tokens },
    },
    beginning: [
      { type: "message_start", message: { usage: { input_tokens, output_tokens: 1 } } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      textDelta(BEGINNING),
    ],
    rest: [
      textDelta(ANSWER.slice(BEGINNING.length)),
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens } },
      { type: "message_stop" },
    ],
    error: (status) => ({
      type: "error",
      error: {
        type: status === 529 ? "overloaded_error" : "api_error",
        message: `failed with ${status}`,
      },
    }),
  },
};

const NO_JSON = "<<< no JSON >>>";
/** What is queued when a body fails is discarded, so it fails once the last piece has left. */
const FLUSH_MS = 20;

export interface FailingProviders {
  /** Base URLs, by wire. */
  readonly baseUrls: Readonly<Record<WireName, string>>;
  /** How often a model was called. */
  callsOf(model: string): number;
  /** What a model does; without a fault it answers. */
  behave(model: string, fault: Fault): void;
  stop(): Promise<void>;
}

export function startFailingProviders(): FailingProviders {
  const faults = new Map<string, Fault>();
  const calls = new Map<string, number>();
  const stopped = new AbortController();
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    development: false,
    idleTimeout: 0,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      const wire = Object.values(PROVIDER_FACTORIES).find(({ path }) => pathname.endsWith(path));
      if (wire === undefined) return new Response(null, { status: 404 });
      const { model, stream } = (await request.json()) as { model: string; stream?: boolean };
      calls.set(model, (calls.get(model) ?? 0) + 1);
      const gone = AbortSignal.any([request.signal, stopped.signal]);
      return answerOf(wire, faults.get(model), stream === true, gone);
    },
  });
  const baseUrl = (name: WireName) => `http://127.0.0.1:${server.port}/${name}/v1`;
  return {
    baseUrls: { openai: baseUrl("openai"), anthropic: baseUrl("anthropic") },
    callsOf: (model) => calls.get(model) ?? 0,
    behave: (model, fault) => void faults.set(model, fault),
    async stop() {
      stopped.abort();
      await server.stop(true);
    },
  };
}

async function answerOf(
  wire: FakeWire,
  fault: Fault | undefined,
  isStream: boolean,
  gone: AbortSignal,
): Promise<Response> {
  if (typeof fault === "number") {
    const headers = fault === 429 ? { "retry-after": String(RETRY_AFTER_SECONDS) } : undefined;
    return Response.json(wire.error(fault), { status: fault, headers });
  }
  if (fault === "silent") {
    await over(gone);
    return new Response(null, { status: 500 });
  }
  const { beginning, end } = isStream ? streamParts(wire, fault) : wholeParts(wire, fault);
  const contentType = isStream ? "text/event-stream" : "application/json";
  const headers = { "content-type": contentType };
  if (end === "close") return new Response(beginning, { headers });
  let isSent = false;
  const body = new ReadableStream({
    async pull(controller) {
      if (!isSent) {
        isSent = true;
        return controller.enqueue(new TextEncoder().encode(beginning));
      }
      await (end === "cut" ? Bun.sleep(FLUSH_MS) : over(gone));
      controller.error(undefined);
    },
  });
  return new Response(body, { headers });
}

interface Parts {
  readonly beginning: string;
  readonly end: "close" | "cut" | "hang";
}

const ENDS: Readonly<Partial<Record<Fault, Parts["end"]>>> = {
  "cut behind it": "cut",
  "silent behind it": "hang",
};

function streamParts({ beginning, rest }: FakeWire, fault: Fault | undefined): Parts {
  if (fault === "garbage") return { beginning: framed([NO_JSON]), end: "close" };
  const end = (fault && ENDS[fault]) ?? "close";
  if (fault === undefined) return { beginning: framed([...beginning, ...rest]), end };
  return { beginning: framed([...beginning, ...(end === "close" ? [NO_JSON] : [])]), end };
}

function wholeParts({ whole }: FakeWire, fault: Fault | undefined): Parts {
  if (fault === "garbage") return { beginning: NO_JSON, end: "close" };
  const body = JSON.stringify(whole);
  const end = (fault && ENDS[fault]) ?? "close";
  return { beginning: fault === undefined ? body : body.slice(0, body.length / 2), end };
}

function framed(events: readonly (object | string)[]): string {
  const payloads = events.map((event) =>
    typeof event === "string" ? event : JSON.stringify(event),
  );
  return payloads.map((payload) => `data: ${payload}\n\n`).join("");
}

function over(gone: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (gone.aborted) return resolve();
    gone.addEventListener("abort", () => resolve(), { once: true });
  });
}
