import { clientClosed, GatewayError } from "../../lib/errors.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import type { SharedBytes } from "../../lib/shared-bytes.ts";
import type { FairWorkThread, WaitSignal } from "../../lib/work-thread.ts";
import type { BodyRender, ChatBody } from "../../providers/chat-body.ts";
import { resultOf, type ThreadOutcome } from "../../providers/thread-work.ts";
import type { PromptSize } from "./cost-bound.ts";
import type { BodyShape } from "./provider-body.ts";
import { type ChatRequest, LONG_BODY } from "./request.ts";
import type { AskedMedia } from "./request-fields.ts";

/** Bytes of long bodies that are kept until their providers answer, over all requests. */
export const MAX_KEPT_BYTES = 536_870_912;
/** Of these, those of one organization. */
export const MAX_KEPT_BYTES_OF_ONE = MAX_KEPT_BYTES / 2;

/** What the thread reports of a body that has passed all checks. */
export interface LongBodyFacts {
  /** Made by `leanRequest`. */
  readonly request: ChatRequest;
  readonly size: PromptSize;
  readonly media: AskedMedia;
  /** See `conversationHead`. */
  readonly head: string;
  /** For its idempotency key: see `bodyHash`. */
  readonly hash: string;
}

/** What a thread is asked. The body is sent with each call, so that a thread may end between them. */
export type LongBodyCall =
  | { readonly kind: "chat.read"; readonly id: number; readonly bytes: SharedBytes }
  | {
      readonly kind: "chat.render";
      readonly id: number;
      readonly bytes: SharedBytes;
      readonly shape: BodyShape;
      /** The module of the BodyRender. */
      readonly module: string;
      readonly options: unknown;
    };

/** The whole body behind a lean request. */
export interface LongChatBody extends Pick<LongBodyFacts, "size" | "media" | "head" | "hash"> {
  shapedAs(shape: BodyShape): ChatBody;
}

interface ReadBody {
  readonly value: ChatRequest;
  release(): void;
}

/** Chat bodies that are too long for the event loop: a thread reads them, and renders them for providers. */
export class LongBodies {
  readonly #thread: FairWorkThread;
  readonly #room = new SharedRoom(MAX_KEPT_BYTES, MAX_KEPT_BYTES_OF_ONE);
  #lastId = 0;

  constructor(thread: FairWorkThread) {
    this.#thread = thread;
  }

  /**
   * Rejects with the 400 that the body deserves, with 503 where the thread has too much to do, is lost, or
   * too many bytes are kept already, and where the client goes.
   */
  async read(bytes: SharedBytes, owner: string, signal: AbortSignal): Promise<ReadBody> {
    const { byteLength } = bytes;
    if (!this.#room.tryTake(owner, byteLength)) {
      throw new GatewayError("overloaded", "Too many large requests are under way.", {
        retryAfterSeconds: 1,
      });
    }
    const body = new KeptBody(this.#thread, ++this.#lastId, bytes, owner, () =>
      this.#room.free(owner, byteLength),
    );
    try {
      const { request, ...facts } = await body.read(signal);
      const long: LongChatBody = { ...facts, shapedAs: (shape) => body.shapedAs(shape) };
      const value = Object.assign(request, { [LONG_BODY]: long });
      return { value, release: () => body.release() };
    } catch (error) {
      body.release();
      throw signal.aborted ? clientClosed(error) : error;
    }
  }
}

/** The bytes of a body until they are released. */
class KeptBody {
  readonly #thread: FairWorkThread;
  readonly #id: number;
  readonly #owner: string;
  readonly #onReleased: () => void;
  #bytes: SharedBytes | undefined;

  constructor(
    thread: FairWorkThread,
    id: number,
    bytes: SharedBytes,
    owner: string,
    onReleased: () => void,
  ) {
    this.#thread = thread;
    this.#id = id;
    this.#bytes = bytes;
    this.#owner = owner;
    this.#onReleased = onReleased;
  }

  read(signal: WaitSignal): Promise<LongBodyFacts> {
    return this.#call((bytes) => ({ kind: "chat.read", id: this.#id, bytes }), signal);
  }

  shapedAs(shape: BodyShape): ChatBody {
    return {
      render: async <Options, Result>(
        { module }: BodyRender<Options, Result>,
        options: Options,
        signal: WaitSignal,
      ) => {
        const outcome = await this.#call<ThreadOutcome>(
          (bytes) => ({ kind: "chat.render", id: this.#id, bytes, shape, module, options }),
          signal,
        );
        return resultOf<Result>(outcome);
      },
    };
  }

  release(): void {
    if (this.#bytes === undefined) return;
    this.#bytes = undefined;
    this.#onReleased();
  }

  #call<Result>(callOf: (bytes: SharedBytes) => LongBodyCall, signal: WaitSignal): Promise<Result> {
    if (this.#bytes === undefined) throw new Error("a long body was released before its last use");
    return this.#thread.call<Result>(this.#owner, callOf(this.#bytes), signal);
  }
}
