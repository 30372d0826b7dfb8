import { type Signal, signal } from "@preact/signals";
import { ApiError, call, errorOf } from "../api.ts";
import { readServerEvents } from "../server-events.ts";
import { callModel } from "./key.ts";

/*
 * An answer waits, then streams, and then is done, stopped by the viewer, or failed. Its last chunk states
 * its cost. If an answer ends without one, the list of requests has the cost soon after.
 */

/** A tool call of an answer, as the API returns it. The arguments are JSON text. */
export interface ToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

/** A request. The viewer can add any further field. */
export interface ChatRequest {
  readonly model: string;
  readonly [field: string]: unknown;
}

export interface AnswerState {
  readonly phase: "waiting" | "streaming" | "done" | "stopped" | "failed";
  readonly text: string;
  readonly reasoning: string;
  readonly refusal: string;
  readonly toolCalls: readonly ToolCall[];
  /** Images of the answer, as data URLs. */
  readonly images: readonly string[];
  /** Sound of the answer. */
  readonly sound?: Sound;
  readonly finishReason?: string;
  /** Time from sending the request to the first piece of its answer. */
  readonly firstTokenMs?: number;
  /** Time from the first piece to the last. */
  readonly streamedMs?: number;
  readonly usage?: Usage;
  /** The cost. Undefined until it is known, null if this session cannot read it. */
  readonly costUsd?: number | null;
  readonly provider?: string;
  readonly requestId?: string;
  readonly error?: ApiError;
}

/** Sound as PCM of 16 bits at 24 kHz in pieces of base64. */
export interface Sound {
  readonly pieces: readonly string[];
  readonly transcript: string;
}

/** Tokens by kind. The details are parts of the prompt or the completion. */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: Readonly<Record<string, number | null>>;
  readonly completion_tokens_details?: Readonly<Record<string, number | null>>;
}

interface Piece {
  readonly content?: string | null;
  readonly reasoning?: string | null;
  readonly refusal?: string | null;
  readonly images?: readonly { readonly image_url?: { readonly url?: string } }[];
  readonly audio?: { readonly data?: string; readonly transcript?: string };
  readonly tool_calls?: readonly {
    readonly index: number;
    readonly id?: string;
    readonly function?: { readonly name?: string; readonly arguments?: string };
  }[];
}

interface Chunk {
  readonly choices?: readonly {
    readonly index: number;
    readonly delta?: Piece;
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: (Usage & { readonly cost?: number }) | null;
  readonly error?: { readonly message?: string; readonly code?: string; readonly param?: string };
}

/** The request in the answer of GET /v1/requests/:id, for an answer that ended before its usage arrived. */
interface EndedRequest {
  readonly cost_usd: number;
  readonly usage:
    | (Omit<Usage, "prompt_tokens_details" | "completion_tokens_details"> & {
        readonly cached_tokens: number | null;
        readonly reasoning_tokens: number | null;
      })
    | null;
}

const INITIAL_STATE: AnswerState = {
  phase: "waiting",
  text: "",
  reasoning: "",
  refusal: "",
  toolCalls: [],
  images: [],
};
/** Time between two updates of the page, because a stream can have hundreds of pieces a second. */
const SHOW_MS = 40;
/** Delays before the attempts to read the request. The list of requests is at most 5 s late. */
const LOOK_UP_MS = [300, 700, 1_500, 3_000, 5_000];

/** Time between two calls that keep the session open while an answer streams. */
const KEEP_SESSION_MS = 300_000;

export class Answer {
  readonly model: string;
  /** Fulfils when the answer has ended and its cost is known, or cannot be found. */
  readonly ended: Promise<void>;
  readonly state: Signal<AnswerState> = signal(INITIAL_STATE);
  readonly #abort = new AbortController();
  #draft: AnswerState = INITIAL_STATE;
  #showing: ReturnType<typeof setTimeout> | undefined;

  /** Calls the model with the key in use, without the session. With a state, restores an ended answer. */
  constructor(body: ChatRequest, restored?: AnswerState) {
    this.model = body.model;
    if (restored !== undefined) {
      this.#draft = restored;
      this.state.value = restored;
    }
    this.ended = restored === undefined ? this.#run(body) : Promise.resolve();
  }

  get isRunning(): boolean {
    const { phase } = this.state.value;
    return phase === "waiting" || phase === "streaming";
  }

  stop(): void {
    this.#abort.abort();
  }

  async #run(body: ChatRequest): Promise<void> {
    // A session ends after an hour without use, which a long answer must not be.
    const keeping = setInterval(() => void call("GET", "session").catch(() => {}), KEEP_SESSION_MS);
    const beganMs = performance.now();
    const { signal } = this.#abort;
    try {
      const response = await callModel("v1/chat/completions", body, signal);
      const { headers } = response;
      this.#change({
        provider: headers.get("x-gateway-provider") ?? undefined,
        requestId: headers.get("x-gateway-request-id") ?? undefined,
      });
      if (!response.ok) throw await errorOf(response);
      let isComplete = false;
      await readServerEvents(response, ({ data }) => {
        if (data === "[DONE]") isComplete = true;
        else this.#take(JSON.parse(data) as Chunk, performance.now() - beganMs);
      });
      if (!isComplete) throw new ApiError(0, "stream_broken", "The connection was lost.", null);
      this.#change({ phase: "done" });
    } catch (error) {
      if (signal.aborted) this.#change({ phase: "stopped" });
      else this.#change({ phase: "failed", error: asApiError(error) });
      // Closes a stream that reported an error itself.
      this.#abort.abort();
    }
    clearInterval(keeping);
    this.#show();
    await this.#lookUpCost();
  }

  #take({ choices, usage, error }: Chunk, afterMs: number): void {
    if (error !== undefined) {
      const { message = "The stream was interrupted.", code = "unknown", param = null } = error;
      throw new ApiError(200, code, message, param);
    }
    if (usage) this.#change({ usage, costUsd: usage.cost });
    const choice = choices?.find(({ index }) => index === 0);
    if (choice === undefined) return;
    if (choice.finish_reason) this.#change({ finishReason: choice.finish_reason });
    const { content, reasoning, refusal, images, audio, tool_calls: calls } = choice.delta ?? {};
    const isEmpty = !content && !reasoning && !refusal && !images?.length && !audio;
    if (isEmpty && !calls?.length) return;
    const { firstTokenMs = afterMs, ...previous } = this.#draft;
    this.#change({
      phase: "streaming",
      text: previous.text + (content ?? ""),
      reasoning: previous.reasoning + (reasoning ?? ""),
      refusal: previous.refusal + (refusal ?? ""),
      toolCalls: (calls ?? []).reduce(withPiece, previous.toolCalls),
      images: [...previous.images, ...imagesIn(images)],
      ...(audio && { sound: withSound(previous.sound, audio) }),
      firstTokenMs,
      streamedMs: afterMs - firstTokenMs,
    });
  }

  #change(changed: Partial<AnswerState>): void {
    this.#draft = { ...this.#draft, ...changed };
    this.#showing ??= setTimeout(() => this.#show(), SHOW_MS);
  }

  #show(): void {
    clearTimeout(this.#showing);
    this.#showing = undefined;
    this.state.value = this.#draft;
  }

  /** Reads the cost of an incomplete answer, which is charged for the delivered part. */
  async #lookUpCost(): Promise<void> {
    const { phase, costUsd, requestId, error } = this.#draft;
    if (costUsd !== undefined || phase === "done" || requestId === undefined) return;
    const wasRejected = error !== undefined && error.status >= 400;
    if (wasRejected) return;
    for (const delayMs of LOOK_UP_MS) {
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      const request = await call<EndedRequest>("GET", `v1/requests/${requestId}`, {
        isUnattended: true,
      }).catch(() => undefined);
      if (request === undefined) continue;
      const { cost_usd: costUsd, usage } = request;
      this.#change({ costUsd, ...(usage && { usage: detailed(usage) }) });
      return this.#show();
    }
    // The key belongs to another organization, so this session cannot read its requests.
    this.#change({ costUsd: null });
    this.#show();
  }
}

/** Returns the data URLs of pictures. The page loads no picture of another host. */
function imagesIn(images: Piece["images"] = []): string[] {
  const urls = images.map((image) => image.image_url?.url);
  return urls.filter(
    (url) => url !== undefined && /^data:image\/(?:png|jpeg|webp|gif);/.test(url),
  ) as string[];
}

function withSound(before: Sound | undefined, piece: NonNullable<Piece["audio"]>): Sound {
  return {
    pieces: [...(before?.pieces ?? []), ...(piece.data ? [piece.data] : [])],
    transcript: (before?.transcript ?? "") + (piece.transcript ?? ""),
  };
}

function withPiece(
  calls: readonly ToolCall[],
  { index, id, function: piece }: NonNullable<Piece["tool_calls"]>[number],
): readonly ToolCall[] {
  const previous = calls[index];
  const name = (previous?.function.name ?? "") + (piece?.name ?? "");
  const text = (previous?.function.arguments ?? "") + (piece?.arguments ?? "");
  const changed: ToolCall = {
    id: previous?.id ?? id ?? "",
    type: "function",
    function: { name, arguments: text },
  };
  return previous === undefined
    ? [...calls, changed]
    : calls.map((call) => (call === previous ? changed : call));
}

function detailed(usage: NonNullable<EndedRequest["usage"]>): Usage {
  return {
    ...usage,
    prompt_tokens_details: { cached_tokens: usage.cached_tokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoning_tokens },
  };
}

function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof SyntaxError) {
    return new ApiError(0, "stream_broken", "The stream contained invalid JSON.", null);
  }
  return new ApiError(0, "unreachable", "The connection to the gateway failed.", null);
}
