import type { LongRead } from "../../../http/route.ts";
import type { SharedBytes } from "../../../lib/shared-bytes.ts";
import { CallAbort } from "../../../providers/transport/call-abort.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import type { Preset } from "../../definitions/definition-cache.ts";
import { chatRoutingView, type LongChatFacts } from "../chat-completions/long-chat.ts";
import type { LongBodies, LongBody } from "../long-bodies.ts";
import { APPLY_GUARDRAILS } from "../paid-route.ts";
import type { StoredNeeds } from "./prepared-turn.ts";
import type { ResponsesFacts } from "./request-facts.ts";
import type { ChainPosition, StoredItems } from "./response-store.ts";
import { storedInputRender } from "./stored-items.ts";

/** The facts that a work thread returns about a body that has passed all checks. */
export type LongResponsesFacts =
  /** The body refers to stored items. The remaining checks run after these are loaded. */
  | { readonly needs: StoredNeeds; readonly hash: string }
  | (Omit<ResponsesFacts, "chat"> & { readonly chat: LongChatFacts; readonly needs?: undefined });

/** A shape that renders the input as it is stored, instead of as a chat call. */
export interface StoredShape {
  /** The name of the response. */
  readonly storedAs: string;
}

/** Counts the tokens of a turn in a work thread. */
export interface CountInputCall {
  readonly kind: "responses.count";
  /** The JSON of a turn, or of a body that refers to no stored items. Both have passed all checks. */
  readonly text: string | SharedBytes;
  readonly isTurn: boolean;
  /** The preset that the body names. A string already includes its members. */
  readonly preset?: Preset | undefined;
}

/** The origin of a turn. */
interface TurnSource {
  readonly use: LongUse;
  /** See `LongResponses.bodyHash`. */
  readonly bodyHash: string | undefined;
}

/** A request whose body a work thread holds. */
export class LongResponses {
  readonly position: ChainPosition | undefined;
  readonly #body: LongBody<LongResponsesFacts>;

  /** The origin of the turn, if the bytes include stored items. Undefined if they are only the body. */
  readonly #turn: TurnSource | undefined;

  constructor(body: LongBody<LongResponsesFacts>, turn?: TurnSource, position?: ChainPosition) {
    this.#body = body;
    this.#turn = turn;
    this.position = position;
  }

  get isTurn(): boolean {
    return this.#turn !== undefined;
  }

  /**
   * The hash of the body as the caller sent it, for its idempotency key. Undefined if no thread has read only
   * the body. Stored items can change between two attempts, so they are not part of the hash.
   */
  get bodyHash(): string | undefined {
    if (this.#turn !== undefined) return this.#turn.bodyHash;
    const { facts } = this.#body;
    return facts.needs === undefined ? facts.chat.hash : facts.hash;
  }

  get needs(): StoredNeeds | undefined {
    return this.#body.facts.needs;
  }

  get bytes(): SharedBytes {
    return this.#body.bytes;
  }

  get preset(): Preset | undefined {
    return this.#body.preset;
  }

  /** The facts of a request whose stored items are loaded. */
  get facts(): ResponsesFacts {
    const { facts } = this.#body;
    if (facts.needs !== undefined) throw new Error("a turn was accepted without its stored items");
    return { ...facts, chat: chatRoutingView(facts.chat, this.#body) };
  }

  withPosition(position: ChainPosition | undefined): LongResponses {
    return new LongResponses(this.#body, this.#turn, position);
  }

  async [APPLY_GUARDRAILS](guard: CallGuard): Promise<LongResponses> {
    return new LongResponses(await this.#body.screened(guard), this.#turn, this.position);
  }

  async storedInput(name: string): Promise<Uint8Array> {
    const shape: StoredShape = { storedAs: name };
    const rendering = this.#body.shapedAs(shape).render(storedInputRender, {}, new CallAbort());
    return (await rendering).body as Uint8Array;
  }
}

/** The use of a long body: a response or a compaction. */
export type LongUse = "responses" | "responses.compact";

/** Reads, in a work thread, a body that is too long for the event loop: see `LongBodies`. */
export async function readLongResponses(
  bodies: LongBodies,
  bytes: SharedBytes,
  owner: string,
  signal: AbortSignal,
  use: LongUse = "responses",
): Promise<LongRead> {
  const body = await bodies.read<LongResponsesFacts>(use, bytes, owner, signal);
  return { value: new LongResponses(body), release: () => body.release() };
}

/** The parts of a long turn besides its body. */
export interface LongBodyParts {
  readonly earlier: StoredItems;
  readonly referable: StoredItems;
  readonly position: ChainPosition | undefined;
  /** Ids of items that were removed from the conversation. */
  readonly removed: readonly string[];
}

/** Reads the text of a turn. */
export async function readLongTurn(
  bodies: LongBodies,
  bytes: SharedBytes,
  owner: string,
  signal: AbortSignal,
  turn: TurnSource,
): Promise<{ readonly responses: LongResponses; release(): void }> {
  const body = await bodies.read<LongResponsesFacts>(`${turn.use}.turn`, bytes, owner, signal);
  return { responses: new LongResponses(body, turn), release: () => body.release() };
}
