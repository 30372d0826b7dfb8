import type { AbortNotice } from "./transport/call-abort.ts";

/**
 * A validated chat request in OpenAI's words: without the gateway's own fields, with `model`, `stream` and, for
 * streams, `stream_options.include_usage` set; the limit of output tokens as `max_tokens`.
 */
export type ChatRequestFields = Readonly<Record<string, unknown>> & {
  readonly [AS_ITEMS]?: ItemsRequest;
};

/**
 * The member of a request that has what chats have no words for, in the form of OpenAI's Responses interface. A
 * symbol, because clients name members of their requests as they like.
 */
export const AS_ITEMS: unique symbol = Symbol("as items");

type Item = Readonly<Record<string, unknown>>;

/** In the place of a chat's messages and tools. */
export interface ItemsRequest {
  /** The conversation; what continues reasoning stands in `details`, as chats have it. */
  readonly input: readonly Item[];
  readonly tools: readonly Item[];
  readonly toolChoice: unknown;
  readonly include: readonly string[];
  /** Of tools that the provider runs. */
  readonly maxToolCalls: number | undefined;
  /** The model that operates a computer takes no conversation that must not be cut. */
  readonly truncation: "auto" | undefined;
}

/**
 * What a wire makes of a chat request: a pure function, and the module that exports it. The event loop calls the
 * function for short bodies. Long ones lie in a work thread, which imports the module and calls it there, so the
 * module imports little (no client, no provider), and the render is its only export of this class.
 *
 *     export const messagesBody = new BodyRender(import.meta.url, (fields, options: Options) => ({
 *       body: JSON.stringify(...),
 *     }));
 *
 * Options and result pass between threads as structured clones. A wire that needs more of the request than the
 * bytes it sends, for headers or to read the answer, returns that beside them. A member `body` of the result
 * that is a string comes back from the thread as its UTF-8 bytes. The function may throw ProviderFailure, which
 * arrives as such from the thread, without its cause.
 */
export class BodyRender<Options, Result> {
  readonly module: string;
  readonly render: (fields: ChatRequestFields, options: Options) => Result;

  constructor(module: string, render: (fields: ChatRequestFields, options: Options) => Result) {
    this.module = module;
    this.render = render;
  }
}

/** What a render for an HTTP request returns, at least. */
export interface RenderedBody {
  readonly body: string | Uint8Array<ArrayBuffer>;
}

/**
 * The request of a chat call. Its fields are seen by renders alone, since those of a long body are not on the
 * event loop.
 */
export interface ChatBody {
  /**
   * At once for a short body. For a long one it rejects with GatewayError 503 where the thread cannot do it,
   * which says nothing about the provider, and with the signal's reason where that aborts.
   */
  render<Options, Result>(
    render: BodyRender<Options, Result>,
    options: Options,
    signal: AbortNotice,
  ): Result | Promise<Result>;
}

/** A body that the event loop holds. */
export class ShortBody implements ChatBody {
  readonly #fields: ChatRequestFields;

  constructor(fields: ChatRequestFields) {
    this.#fields = fields;
  }

  render<Options, Result>(render: BodyRender<Options, Result>, options: Options): Result {
    return render.render(this.#fields, options);
  }
}
