import type { LongRead } from "../../../http/route.ts";
import type { SharedBytes } from "../../../lib/shared-bytes.ts";
import { CallAbort } from "../../../providers/transport/call-abort.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import type { Preset } from "../../definitions/known-definitions.ts";
import { chatRoutingView, type LongChatFacts } from "../chat-completions/long-chat.ts";
import type { LongBodies, LongBody } from "../long-bodies.ts";
import { GUARDRAILS_APPLIED } from "../paid-route.ts";
import type { StoredNeeds } from "./prepared-turn.ts";
import type { ResponsesFacts } from "./request-facts.ts";
import type { ChainPlace, StoredItems } from "./response-store.ts";
import { storedInputRender } from "./stored-items.ts";

/** What the thread reports of a body that has passed all checks. */
export type LongResponsesFacts =
  /** What it builds on is still to be brought; the rest of its checks follows then. */
  | { readonly needs: StoredNeeds; readonly hash: string }
  | (Omit<ResponsesFacts, "chat"> & { readonly chat: LongChatFacts; readonly needs?: undefined });

/** How the thread gives a turn to a render: as the chat call has it, or as it is stored. */
export interface StoredShape {
  /** Of the response. */
  readonly storedAs: string;
}

/** Counts the tokens of a turn in the thread. */
export interface CountInputCall {
  readonly kind: "responses.count";
  /** JSON of a turn, or of a body that builds on nothing stored; each has passed all checks. */
  readonly text: string | SharedBytes;
  readonly isTurn: boolean;
  /** The one that the body names; a text includes it already. */
  readonly preset?: Preset | undefined;
}

/** What a turn was made of. */
interface TurnSource {
  readonly use: LongUse;
  /** See `LongResponses.bodyHash`. */
  readonly bodyHash: string | undefined;
}

/** A request that lies in a work thread. */
export class LongResponses {
  readonly place: ChainPlace | undefined;
  readonly #body: LongBody<LongResponsesFacts>;

  /** Set where its bytes are those of a turn, with the stored items that it builds on, and not of the body alone. */
  readonly #turn: TurnSource | undefined;

  constructor(body: LongBody<LongResponsesFacts>, turn?: TurnSource, place?: ChainPlace) {
    this.#body = body;
    this.#turn = turn;
    this.place = place;
  }

  get isTurn(): boolean {
    return this.#turn !== undefined;
  }

  /**
   * Of the body as the caller sent it, for its idempotency key; undefined where no thread has read that alone. What is
   * stored grows between two tries.
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

  /** Of one that needs nothing more. */
  get facts(): ResponsesFacts {
    const { facts } = this.#body;
    if (facts.needs !== undefined) throw new Error("a turn was accepted without what it builds on");
    return { ...facts, chat: chatRoutingView(facts.chat, this.#body) };
  }

  at(place: ChainPlace | undefined): LongResponses {
    return new LongResponses(this.#body, this.#turn, place);
  }

  async [GUARDRAILS_APPLIED](guard: CallGuard): Promise<LongResponses> {
    return new LongResponses(await this.#body.screened(guard), this.#turn, this.place);
  }

  async storedInput(name: string): Promise<Uint8Array> {
    const shape: StoredShape = { storedAs: name };
    const rendering = this.#body.shapedAs(shape).render(storedInputRender, {}, new CallAbort());
    return (await rendering).body as Uint8Array;
  }
}

/** What is made of a long body: a response, or a compaction. */
export type LongUse = "responses" | "responses.compact";

/** Reads a body that is too long for the event loop: see `LongBodies`. */
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

/** What a long turn consists of: its text is a body with the stored items that it builds on. */
export interface LongBodyParts {
  readonly earlier: StoredItems;
  readonly referable: StoredItems;
  readonly place: ChainPlace | undefined;
  /** Ids of earlier items that were taken out of the conversation. */
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
