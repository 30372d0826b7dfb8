import { clientClosed, overloaded } from "../../lib/errors.ts";
import type { WaitSignal } from "../../lib/fair-share.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import type { SharedBytes } from "../../lib/shared-bytes.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import type { BodyRender, ChatBody } from "../../providers/chat-body.ts";
import { resultOf, type ThreadOutcome } from "../../providers/thread-work.ts";
import type { CallGuard } from "../call/guard/call-guard.ts";
import type { DefinitionCache, Preset } from "../definitions/definition-cache.ts";
import type { Guardrail } from "../guardrails/screening/guardrail.ts";
import type { ScreeningResult } from "../guardrails/screening/screen-json.ts";

/** Maximum bytes of long bodies that are stored until their providers answer, over all requests. */
export const MAX_STORED_BYTES = 536_870_912;
/** The part of `MAX_STORED_BYTES` that one organization can use. */
export const MAX_STORED_BYTES_OF_ONE = MAX_STORED_BYTES / 2;

/** A call of the work thread. Each call carries the body, so that a thread can end between two calls. */
export type LongBodyCall = LongBodySource &
  (
    | { readonly kind: "body.read" }
    | {
        readonly kind: "body.render";
        readonly shape: unknown;
        /** The module that exports the BodyRender. */
        readonly module: string;
        readonly options: unknown;
      }
  );

interface LongBodySource {
  /** The name of the LongBodyForm. */
  readonly form: string;
  readonly id: number;
  readonly bytes: SharedBytes;
  /** The preset that the body names. Undefined until the first read has found its name. */
  readonly preset?: Preset | undefined;
  /** The guardrails that redact the body. Undefined until guardrails are applied. */
  readonly guardrails?: readonly Guardrail[] | undefined;
}

/**
 * The result of `body.read`: the facts of the body, or the name of the preset that the thread needs to check
 * it.
 */
export type LongBodyRead<Facts> =
  | {
      readonly facts: Facts;
      readonly presetName?: undefined;
      /** The result of the guardrails. Undefined if none apply to the body. */
      readonly screened?: ScreenedBody | undefined;
    }
  | { readonly presetName: string };

type ReadFacts<Facts> = Extract<LongBodyRead<Facts>, { readonly facts: Facts }>;

type ScreenedBody = Pick<ScreeningResult<unknown>, "isBlocked" | "hits"> & {
  /** The text that a moderation model reads. */
  readonly texts: string;
};

/** A long body that a thread has read. It holds its bytes until it is released. */
export interface LongBody<Facts> {
  /** The facts that the thread returns. They are small for a body of any length. */
  readonly facts: Facts;
  readonly bytes: SharedBytes;
  /** The preset that the body names. Its members are included in the facts. */
  readonly preset: Preset | undefined;
  shapedAs(shape: unknown): ChatBody;
  /**
   * Returns the body with the redactions of the guardrails. Rejects with 400 if a guardrail blocks the body.
   */
  screened(guard: CallGuard): Promise<LongBody<Facts>>;
  release(): void;
}

/** Reads and renders, in a work thread, bodies that are too long for the event loop. */
export class LongBodies {
  readonly #thread: FairWorkThread;
  readonly #definitions: DefinitionCache;
  readonly #room = new SharedRoom(MAX_STORED_BYTES, MAX_STORED_BYTES_OF_ONE);
  #lastId = 0;

  constructor(thread: FairWorkThread, definitions: DefinitionCache) {
    this.#thread = thread;
    this.#definitions = definitions;
  }

  /**
   * Reads a body in the work thread. Rejects with 400 if the body is invalid. Rejects with 503 if the thread
   * is overloaded or lost, or if too many bytes are stored. Rejects also if the client disconnects.
   *
   * @param owner the organization, whose preset the body may name
   */
  async read<Facts>(
    form: string,
    bytes: SharedBytes,
    owner: string,
    signal: AbortSignal,
  ): Promise<LongBody<Facts>> {
    const { byteLength } = bytes;
    if (!this.#room.tryTake(owner, byteLength)) {
      throw overloaded("Too many large requests are in progress.");
    }
    const onReleased = () => this.#room.free(owner, byteLength);
    const id = ++this.#lastId;
    const body = new StoredBody(this.#thread, { form, id, bytes, owner, onReleased });
    try {
      const readPreset = (name: string) => this.#definitions.preset(owner, name);
      const { facts } = await body.read<Facts>(signal, readPreset);
      return readBody(body, bytes, facts, signal);
    } catch (error) {
      body.release();
      throw signal.aborted ? clientClosed(error) : error;
    }
  }
}

function readBody<Facts>(
  body: StoredBody,
  bytes: SharedBytes,
  facts: Facts,
  signal: AbortSignal,
): LongBody<Facts> {
  return {
    facts,
    bytes,
    preset: body.preset,
    shapedAs: (shape) => body.shapedAs(shape),
    release: () => body.release(),
    async screened(guard) {
      const read = await body.screen<Facts>(guard.guardrails, signal);
      guard.recordInput(read.screened!);
      await guard.moderateInput(read.screened!.texts);
      return readBody(body, bytes, read.facts, signal);
    },
  };
}

interface StoredBodyParts {
  readonly form: string;
  readonly id: number;
  readonly bytes: SharedBytes;
  readonly owner: string;
  onReleased(): void;
}

/** The bytes of a long body until it is released. */
class StoredBody {
  readonly #thread: FairWorkThread;
  readonly #parts: StoredBodyParts;
  #bytes: SharedBytes | undefined;
  preset: Preset | undefined;
  #guardrails: readonly Guardrail[] | undefined;

  constructor(thread: FairWorkThread, parts: StoredBodyParts) {
    this.#thread = thread;
    this.#parts = parts;
    this.#bytes = parts.bytes;
  }

  async read<Facts>(
    signal: WaitSignal,
    readPreset: (name: string) => Preset | Promise<Preset>,
  ): Promise<ReadFacts<Facts>> {
    for (;;) {
      const read = await this.#call<LongBodyRead<Facts>>(
        (source) => ({ kind: "body.read", ...source }),
        signal,
      );
      if (read.presetName === undefined) return read;
      this.preset = await readPreset(read.presetName);
    }
  }

  /** Applies the guardrails. Later renderings of the body are redacted by the same guardrails. */
  async screen<Facts>(
    guardrails: readonly Guardrail[],
    signal: WaitSignal,
  ): Promise<ReadFacts<Facts>> {
    this.#guardrails = guardrails;
    const read = await this.#call<LongBodyRead<Facts>>(
      (source) => ({ kind: "body.read", ...source }),
      signal,
    );
    return read as ReadFacts<Facts>;
  }

  shapedAs(shape: unknown): ChatBody {
    return {
      render: async <Options, Result>(
        { module }: BodyRender<Options, Result>,
        options: Options,
        signal: WaitSignal,
      ) => {
        const outcome = await this.#call<ThreadOutcome>(
          (source) => ({ kind: "body.render", ...source, shape, module, options }),
          signal,
        );
        return resultOf<Result>(outcome);
      },
    };
  }

  release(): void {
    if (this.#bytes === undefined) return;
    this.#bytes = undefined;
    this.#parts.onReleased();
  }

  #call<Result>(
    callOf: (source: LongBodySource) => LongBodyCall,
    signal: WaitSignal,
  ): Promise<Result> {
    const bytes = this.#bytes;
    if (bytes === undefined) throw new Error("a long body was released before its last use");
    const { form, id, owner } = this.#parts;
    const call = callOf({ form, id, bytes, preset: this.preset, guardrails: this.#guardrails });
    return this.#thread.call<Result>(owner, call, signal);
  }
}
