import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import {
  appendEvents,
  type BackgroundResponse,
  cancelledAmong,
  endBackground,
  findBackground,
  findEventBatch,
  insertBackground,
  isRunning,
  readEvents,
  requestCancel,
} from "../../../db/queries/background-responses.ts";
import type { NewResponse } from "../../../db/queries/responses.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { responseWith } from "../endpoints/responses/response-json.ts";
import {
  type ResponseStore,
  responseNotFound,
  underSealingKey,
} from "../endpoints/responses/response-store.ts";

/** The maximum size of one encrypted piece. */
const PIECE_BYTES = 262_144;
/** Pieces that are read and decrypted together. */
const PIECES_AT_ONCE = 8;
/** The retry delay for rejected clients. */
const RETRY_AFTER_SECONDS = 5;

/** Consecutive events, in whole frames. */
export interface EventBatch {
  readonly firstSequence: number;
  readonly lastSequence: number;
  readonly bytes: Uint8Array;
}

export interface BackgroundBeginning {
  /** The size of all earlier items of the chain, in bytes. */
  readonly chainBytes: number;
  /** The response in its queued state. */
  readonly json: string;
  readonly events: EventBatch;
}

/** The end of a response without a charge that makes its answer visible. */
export interface BackgroundEnding {
  readonly state: "failed" | "cancelled";
  /** The response in its final state. */
  readonly json: string | undefined;
  readonly lastSequence: number;
}

/** The position from which events are read next. */
export interface EventPosition {
  readonly firstSequence: number;
  readonly number: number;
}

export interface PlainEvents extends EventPosition {
  readonly plain: Uint8Array;
}

interface BackgroundStoreDependencies {
  readonly sql: Database;
  readonly keyring: Keyring;
  readonly instance: InstanceIdentity;
  readonly responses: ResponseStore;
  /** Maximum background responses of one organization that run at the same time, on all instances. */
  readonly maxRunning: number;
}

/**
 * Background responses: their states and their encrypted events. Writes carry the name of this instance, so
 * that it writes nothing after it was declared dead.
 */
export class BackgroundStore {
  readonly #dependencies: BackgroundStoreDependencies;

  constructor(dependencies: BackgroundStoreDependencies) {
    this.#dependencies = dependencies;
  }

  /** Stores a new response. Throws 429 if the organization has the maximum number of running responses. */
  async begin(
    response: NewResponse,
    { chainBytes, json, events }: BackgroundBeginning,
  ): Promise<void> {
    const { sql, instance, maxRunning, responses } = this.#dependencies;
    if (
      !(await insertBackground(sql, { response, chainBytes, instance, mostRunning: maxRunning }))
    ) {
      const message = `The organization is already running ${maxRunning} background responses, which is the limit.`;
      throw new GatewayError("too_many_background_responses", message, {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    await responses.write(response, [["begun", new TextEncoder().encode(json)]]);
    if (!(await this.append(response.id, events))) throw declaredDead();
  }

  /** Appends events. Returns false if the response has ended; nothing is written then. */
  async append(id: string, { firstSequence, lastSequence, bytes }: EventBatch): Promise<boolean> {
    const { sql, instance, keyring } = this.#dependencies;
    for (let number = 0; number * PIECE_BYTES < bytes.length; number++) {
      const at = number * PIECE_BYTES;
      const plain = bytes.subarray(at, at + PIECE_BYTES);
      const isLast = at + PIECE_BYTES >= bytes.length;
      const appended = await underSealingKey(keyring, (keyId) => {
        const sealed = keyring.sealUnder(keyId, plain);
        const piece = {
          ...{ firstSequence, number, sealed },
          lastSequence: isLast ? lastSequence : firstSequence - 1,
        };
        return appendEvents(sql, { id, instance }, piece, keyId);
      });
      if (!appended.isRunning) return false;
    }
    return true;
  }

  /** Ends a response. It has no answer unless its charge was written. */
  async end(response: NewResponse, { json, ...ending }: BackgroundEnding): Promise<void> {
    const { sql, instance, responses } = this.#dependencies;
    if (json !== undefined) {
      await responses.write(response, [["ended", new TextEncoder().encode(json)]]);
    }
    await endBackground(sql, { id: response.id, instance }, ending);
  }

  find(organizationId: string, id: string): Promise<BackgroundResponse | undefined> {
    return findBackground(this.#dependencies.sql, organizationId, id);
  }

  positionAfter(id: string, after: number): Promise<EventPosition> {
    return findEventBatch(this.#dependencies.sql, id, after);
  }

  async events(id: string, from: EventPosition): Promise<PlainEvents[]> {
    const { sql, keyring } = this.#dependencies;
    const pieces = await readEvents(sql, id, from, PIECES_AT_ONCE);
    return pieces.map(({ sealed, ...position }) => ({ ...position, plain: keyring.open(sealed) }));
  }

  /** Returns the response in its current state, as JSON. Throws 404 if it does not exist. */
  async response(organizationId: string, id: string): Promise<Uint8Array> {
    const { responses } = this.#dependencies;
    const answered = await responses.response(organizationId, id);
    if (answered !== undefined) {
      const head = Buffer.concat(answered.head.pieces).subarray(0, -1);
      const parts = [head, Buffer.from(',"output":['), ...answered.output.pieces];
      return Buffer.concat([...parts, Buffer.from("]}")]);
    }
    const current = await this.find(organizationId, id);
    if (current === undefined) throw responseNotFound();
    // The response was charged after the first look-up.
    if (current.isVisible) return this.response(organizationId, id);
    if (!isRunning(current.state)) {
      const ended = await responses.unanswered(organizationId, id, "ended");
      if (ended !== undefined) return ended;
    }
    const begun = await responses.unanswered(organizationId, id, "begun");
    if (begun === undefined) throw responseNotFound();
    const text = Buffer.from(begun).toString("utf8");
    return new TextEncoder().encode(
      isRunning(current.state)
        ? responseWith(text, current.state as "queued" | "in_progress")
        : responseWith(text, "failed", instanceEnded()),
    );
  }

  requestCancel(organizationId: string, id: string): Promise<void> {
    return requestCancel(this.#dependencies.sql, organizationId, id);
  }

  cancelledAmong(ids: readonly string[]): Promise<string[]> {
    return cancelledAmong(this.#dependencies.sql, ids);
  }
}

function declaredDead(): GatewayError {
  return new GatewayError("database_unavailable", "The gateway cannot run the response.", {
    retryAfterSeconds: 1,
  });
}

function instanceEnded(): GatewayError {
  return new GatewayError("internal", "The gateway instance that ran the response has stopped.");
}
