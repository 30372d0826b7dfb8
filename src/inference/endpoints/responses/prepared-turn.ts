import { MAX_WHOLE_BYTES } from "../../../http/read-body.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { type SharedBytes, SharedBytesWriter } from "../../../lib/shared-bytes.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import type { DefinitionCache } from "../../definitions/definition-cache.ts";
import { preparePreset } from "../fill-preset.ts";
import type { LongBodies } from "../long-bodies.ts";
import {
  APPLY_GUARDRAILS,
  type IncomingCall,
  type LoadedBody,
  type Prepare,
} from "../paid-route.ts";
import { compactionOf } from "./compaction.ts";
import { referredId } from "./item-references.ts";
import { type LongBodyParts, LongResponses, readLongTurn } from "./long-responses.ts";
import { checkResponses, filledResponses } from "./preset.ts";
import {
  conversationIdOf,
  type Item,
  inputItems,
  type ResponsesBody,
  type ResponsesTurn,
} from "./request.ts";
import { assertResponses } from "./request-checks.ts";
import type { ChainPosition, ResponseStore, StoredItems } from "./response-store.ts";
import { responseOfItem } from "./stored-items.ts";

/** Maximum number of responses that are looked up for one request. */
const MAX_REFERRED_RESPONSES = 1_000;

/** The stored objects that a request refers to. */
export interface StoredNeeds {
  readonly previousId: string | undefined;
  readonly conversationId: string | undefined;
  /** Responses whose items the request refers to. */
  readonly referredIds: readonly string[];
}

/**
 * Returns the stored objects that a request refers to, or undefined if there are none. Throws 400 if the input
 * refers to too many responses.
 */
export function needsOf(body: ResponsesBody): StoredNeeds | undefined {
  const previousId = body.previous_response_id ?? undefined;
  const referred = new Set<string>();
  for (const item of inputItems(body)) {
    const id = referredId(item);
    const response = id === undefined ? undefined : responseOfItem(id);
    if (response !== undefined) referred.add(response);
  }
  if (referred.size > MAX_REFERRED_RESPONSES) {
    const message = `input refers to items of more than ${MAX_REFERRED_RESPONSES} responses.`;
    throw new GatewayError("invalid_body", message, { param: "input" });
  }
  const conversationId = conversationIdOf(body);
  const isIndependent = (previousId ?? conversationId) === undefined && referred.size === 0;
  return isIndependent ? undefined : { previousId, conversationId, referredIds: [...referred] };
}

/** A request with its stored items, short enough for the event loop. */
export class ShortTurn {
  readonly turn: ResponsesTurn;
  readonly position: ChainPosition | undefined;

  constructor(turn: ResponsesTurn, position: ChainPosition | undefined) {
    this.turn = turn;
    this.position = position;
  }

  async [APPLY_GUARDRAILS](guard: CallGuard): Promise<ShortTurn> {
    return new ShortTurn((await guard.input(this.turn)) as ResponsesTurn, this.position);
  }
}

interface PreparingDependencies {
  readonly store: ResponseStore;
  readonly longBodies: LongBodies;
  readonly definitions: DefinitionCache;
  /** True if the turns are compacted instead of answered. */
  readonly isCompacted?: boolean;
}

/**
 * Loads the stored items that a request refers to. As with long bodies, it reads them only for a key that has
 * rate and budget left. If they are too long for the event loop, the work thread reads them together with the
 * body.
 */
export class TurnPreparation {
  readonly #dependencies: PreparingDependencies;
  readonly #fill: Prepare;

  constructor(dependencies: PreparingDependencies) {
    this.#dependencies = dependencies;
    this.#fill = preparePreset(dependencies.definitions, filledResponses, checkResponses);
  }

  /** Returns the turn of a request as its body. Rejects if the request is rejected. */
  readonly prepare = async (
    context: IncomingCall,
    admit: Parameters<Prepare>[1],
  ): Promise<LoadedBody> => {
    const { body } = (await this.#fill(context, admit)) ?? context;
    const { admittedRateHeaders } = context;
    if (body instanceof LongResponses) {
      const { needs } = body;
      return needs === undefined
        ? { body, admittedRateHeaders }
        : this.#load(context, body, needs, admit);
    }
    assertResponses(body as ResponsesBody);
    const needs = needsOf(body as ResponsesBody);
    if (needs !== undefined) return this.#load(context, body as ResponsesBody, needs, admit);
    const turn = { body: body as ResponsesBody, earlier: [], referable: [] };
    return { body: this.#short(turn, undefined), admittedRateHeaders };
  };

  async #load(
    context: IncomingCall,
    body: ResponsesBody | LongResponses,
    needs: StoredNeeds,
    admit: Parameters<Prepare>[1],
  ): Promise<LoadedBody> {
    const { store } = this.#dependencies;
    const admittedRateHeaders = context.admittedRateHeaders ?? (await admit());
    const { organizationId } = context.caller.key;
    const { previousId, conversationId, referredIds } = needs;
    const ofConversation =
      conversationId === undefined
        ? undefined
        : await store.ofConversation(organizationId, conversationId);
    const before =
      previousId === undefined
        ? ofConversation
        : await store.conversation(organizationId, previousId);
    const referable = await store.itemsOf(organizationId, referredIds);
    const earlier = before?.items ?? { pieces: [], byteLength: 0 };
    const position = before?.position;
    const removed = ofConversation?.removedItems ?? [];
    const parts = { earlier, referable, position, removed };
    const isShort = earlier.byteLength + referable.byteLength <= MAX_WHOLE_BYTES;
    if (isShort && !(body instanceof LongResponses)) {
      const turn = { body, earlier: parsed(earlier), referable: parsed(referable), removed };
      return { body: this.#short(turn, position), admittedRateHeaders };
    }
    const bodyHash = body instanceof LongResponses ? body.bodyHash : undefined;
    return { body: await this.#readLong(context, parts, bodyHash), admittedRateHeaders };
  }

  #short(turn: ResponsesTurn, position: ChainPosition | undefined): ShortTurn {
    const { isCompacted } = this.#dependencies;
    return isCompacted
      ? new ShortTurn(compactionOf(turn), undefined)
      : new ShortTurn(turn, position);
  }

  /** Reads one JSON text with all parts of the turn in the work thread. */
  async #readLong(
    context: IncomingCall,
    { earlier, referable, position, removed }: LongBodyParts,
    bodyHash: string | undefined,
  ): Promise<LongResponses> {
    const { lifetime, request, caller } = context;
    const bytes = turnText({ earlier, referable, removed }, bodyBytes(context));
    const release = lifetime.releaseBody;
    const { longBodies, isCompacted } = this.#dependencies;
    const owner = caller.key.organizationId;
    const use = isCompacted ? "responses.compact" : "responses";
    const turn = { use, bodyHash } as const;
    const read = await readLongTurn(longBodies, bytes, owner, request.signal, turn);
    // The turn includes the body.
    release?.();
    lifetime.releaseBody = () => read.release();
    return read.responses.withPosition(position);
  }
}

function bodyBytes({ body, bodyText }: IncomingCall): readonly Uint8Array[] {
  if (body instanceof LongResponses) return body.bytes.segments;
  return [new TextEncoder().encode(bodyText)];
}

const TEXT = new TextEncoder();
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

function turnText(
  { earlier, referable, removed }: Omit<LongBodyParts, "position">,
  body: readonly Uint8Array[],
): SharedBytes {
  const writer = new SharedBytesWriter();
  const add = (text: string, pieces: readonly Uint8Array[]) => {
    writer.push(TEXT.encode(text));
    for (const piece of pieces) writer.push(piece);
  };
  add('{"earlier":[', earlier.pieces);
  add(`],"removed":${JSON.stringify(removed)},"referable":[`, referable.pieces);
  const [first = new Uint8Array(), ...rest] = body;
  const isMarked = BYTE_ORDER_MARK.every((byte, at) => first[at] === byte);
  add('],"body":', [isMarked ? first.subarray(BYTE_ORDER_MARK.length) : first, ...rest]);
  add("}", []);
  return writer.end();
}

function parsed({ pieces }: StoredItems): Item[] {
  return JSON.parse(`[${Buffer.concat(pieces).toString("utf8")}]`) as Item[];
}
