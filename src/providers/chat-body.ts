import type { AbortNotice } from "./transport/call-abort.ts";

/**
 * A validated chat request in OpenAI's format, without the gateway's own fields. `model` and `stream` are set, in
 * streams also `stream_options.include_usage`. The output limit is in `max_tokens`.
 */
export type ChatRequestFields = Readonly<Record<string, unknown>> & {
  readonly [AS_ITEMS]?: ItemsRequest;
};

/**
 * The key of the parts of a request that chat completions cannot express, in the format of OpenAI's Responses API. A
 * symbol, because clients can send members of any name.
 */
export const AS_ITEMS: unique symbol = Symbol("as items");

type Item = Readonly<Record<string, unknown>>;

/** Replaces the messages and tools of a chat. */
export interface ItemsRequest {
  /** The conversation. Reasoning to continue from is in `details`, in the form that chats use. */
  readonly input: readonly Item[];
  readonly tools: readonly Item[];
  readonly toolChoice: unknown;
  readonly include: readonly string[];
  /** Limit for tools that the provider runs. */
  readonly maxToolCalls: number | undefined;
  /** "auto" lets the provider drop old items. Models that operate a computer require it. */
  readonly truncation: "auto" | undefined;
}

/**
 * Builds a provider's request from a chat request: a pure function, and the module that exports it. The event loop
 * calls the function for short bodies. A long body is in a work thread, which imports the module and calls it there.
 * The module therefore imports little (no client, no provider), and has no other export of this class.
 *
 *     export const messagesBody = new BodyRender(import.meta.url, (fields, options: Options) => ({
 *       body: JSON.stringify(...),
 *     }));
 *
 * Options and result are passed between threads as structured clones. If a provider needs more of the request than the
 * bytes to send, for headers or to read the response, the function returns that in other members. A string in the
 * member `body` arrives from the thread as its UTF-8 bytes. The function can throw ProviderFailure, which arrives from
 * the thread without its cause.
 */
export class BodyRender<Options, Result> {
  readonly module: string;
  readonly render: (fields: ChatRequestFields, options: Options) => Result;

  constructor(module: string, render: (fields: ChatRequestFields, options: Options) => Result) {
    this.module = module;
    this.render = render;
  }
}

/** The least that a function for an HTTP request returns. */
export interface RenderedBody {
  readonly body: string | Uint8Array<ArrayBuffer>;
}

/**
 * The request of a chat call. Only BodyRender functions see its fields, because the fields of a long body are not on
 * the event loop.
 */
export interface ChatBody {
  /**
   * Returns the rendered request: directly for a short body, else a promise. The promise rejects with GatewayError 503
   * if the thread cannot render it, which says nothing about the provider. It rejects with the signal's reason if the
   * signal aborts.
   */
  render<Options, Result>(
    render: BodyRender<Options, Result>,
    options: Options,
    signal: AbortNotice,
  ): Result | Promise<Result>;
}

/** A body that is held on the event loop. */
export class ShortBody implements ChatBody {
  readonly #fields: ChatRequestFields;

  constructor(fields: ChatRequestFields) {
    this.#fields = fields;
  }

  render<Options, Result>(render: BodyRender<Options, Result>, options: Options): Result {
    return render.render(this.#fields, options);
  }
}
