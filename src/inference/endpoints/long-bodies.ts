import type { CallGuard } from "../call/guard/call-guard.ts";
import type { KnownDefinitions, Preset } from "../definitions/known-definitions.ts";
import { clientClosed, GatewayError } from "../../lib/errors.ts";
import type { WaitSignal } from "../../lib/fair-share.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import type { SharedBytes } from "../../lib/shared-bytes.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import type { BodyRender, ChatBody } from "../../providers/chat-body.ts";
import { resultOf, type ThreadOutcome } from "../../providers/thread-work.ts";
import type { Guardrail } from "../guardrails/screening/guardrail.ts";
import type { Screened } from "../guardrails/screening/screen-json.ts";

/** Bytes of long bodies that are kept until their providers answer, over all requests. */
export const MAX_KEPT_BYTES = 536_870_912;
/** Of these, those of one organization. */
export const MAX_KEPT_BYTES_OF_ONE = MAX_KEPT_BYTES / 2;

/** What a thread is asked. The body is sent with each call, so that a thread may end between them. */
export type LongBodyCall = LongBodySource &
  (
    | { readonly kind: "body.read" }
    | {
        readonly kind: "body.render";
        readonly shape: unknown;
        /** The module of the BodyRender. */
        readonly module: string;
        readonly options: unknown;
      }
  );

interface LongBodySource {
  /** Names the LongBodyForm. */
  readonly form: string;
  readonly id: number;
  readonly bytes: SharedBytes;
  /** The one that the body names, once it is known. */
  readonly preset?: Preset | undefined;
  /** What redacts in it, once it is known. */
  readonly guardrails?: readonly Guardrail[] | undefined;
}

/** What a thread answers to `body.read`: facts of a body, or the preset without which it cannot be checked. */
export type LongBodyRead<Facts> =
  | {
      readonly facts: Facts;
      readonly presetName?: undefined;
      /** Where guardrails have looked through it. */
      readonly screened?: ScreenedBody | undefined;
    }
  | { readonly presetName: string };

type ReadFacts<Facts> = Extract<LongBodyRead<Facts>, { readonly facts: Facts }>;

type ScreenedBody = Pick<Screened<unknown>, "isBlocked" | "hits"> & {
  /** What a model that moderates is to read. */
  readonly texts: string;
};

/** A body that a thread has read, until it is released. */
export interface LongBody<Facts> {
  /** What the thread reports of it: small, whatever it holds. */
  readonly facts: Facts;
  readonly bytes: SharedBytes;
  /** What its facts include, and its bytes name. */
  readonly preset: Preset | undefined;
  shapedAs(shape: unknown): ChatBody;
  /** The same with what guardrails redact. Rejects with 400 where they block it. */
  screened(guard: CallGuard): Promise<LongBody<Facts>>;
  release(): void;
}

/** Bodies that are too long for the event loop: a thread reads them, and renders them for providers. */
export class LongBodies {
  readonly #thread: FairWorkThread;
  readonly #definitions: KnownDefinitions;
  readonly #room = new SharedRoom(MAX_KEPT_BYTES, MAX_KEPT_BYTES_OF_ONE);
  #lastId = 0;

  constructor(thread: FairWorkThread, definitions: KnownDefinitions) {
    this.#thread = thread;
    this.#definitions = definitions;
  }

  /**
   * Rejects with the 400 that the body deserves, with 503 where the thread has too much to do, is lost, or
   * too many bytes are kept already, and where the client goes.
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
      throw new GatewayError("overloaded", "Too many large requests are under way.", {
        retryAfterSeconds: 1,
      });
    }
    const onReleased = () => this.#room.free(owner, byteLength);
    const id = ++this.#lastId;
    const body = new KeptBody(this.#thread, { form, id, bytes, owner, onReleased });
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
  body: KeptBody,
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
      guard.noteInput(read.screened!);
      await guard.moderateInput(read.screened!.texts);
      return readBody(body, bytes, read.facts, signal);
    },
  };
}

interface KeptBodyParts {
  readonly form: string;
  readonly id: number;
  readonly bytes: SharedBytes;
  readonly owner: string;
  onReleased(): void;
}

/** The bytes of a body until they are released. */
class KeptBody {
  readonly #thread: FairWorkThread;
  readonly #parts: KeptBodyParts;
  #bytes: SharedBytes | undefined;
  preset: Preset | undefined;
  #guardrails: readonly Guardrail[] | undefined;

  constructor(thread: FairWorkThread, parts: KeptBodyParts) {
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

  /** From here on it is rendered with what these redact. */
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
