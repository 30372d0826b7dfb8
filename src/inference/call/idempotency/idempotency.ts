import { createHash } from "node:crypto";
import { DatabaseDeadlineError } from "../../../../db/bounded-database.ts";
import type { StatementEffect } from "../../../../db/ledger/effects.ts";
import type { InstanceIdentity } from "../../../../db/ledger/settle-batch.ts";
import { storeAnswerSteps, takeAnswerSteps } from "../../../../db/queries/answer-steps.ts";
import {
  type ClaimOutcome,
  claimIdempotencyKey,
  type IdempotencyClaim,
  type StoredResult,
  type StoreOptions,
  storeResultEffect,
} from "../../../../db/queries/idempotency.ts";
import { untilReachable } from "../../../../db/unavailable.ts";
import { finishesWithin } from "../../../lib/deadlines.ts";
import { clientClosed, GatewayError, stopping } from "../../../lib/errors.ts";
import type { Keyring } from "../../../lib/keyring.ts";
import { KeyFrees } from "./key-frees.ts";
import { RunningCalls, type RunningCallsDependencies } from "./running-calls.ts";

/** Results above this are not kept. */
export const MAX_STORED_RESULT_BYTES = 1_048_576;
const MAX_KEY_CHARACTERS = 255;
/** How long a caller waits for a key to be freed: a database that is out of reach holds no caller up. */
const FREE_PATIENCE_MS = 100;
/** The same, of a call that comes for the key, all in all. */
const MAX_WAIT_FOR_FREE_MS = 250;
/** How long an answer waits for its steps to be stored before it goes on without them. */
const MAX_WAIT_FOR_STEPS_MS = 2_000;

export interface IdempotencyDependencies extends RunningCallsDependencies {
  readonly instance: InstanceIdentity;
  readonly keyring: Keyring;
  /** How long a second call waits for the first. */
  readonly maxWaitMs: number;
}

export interface Replay {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Uint8Array;
}

/**
 * The same call twice gives one upstream call, one charge and one result.
 *
 * Errors and disconnects free the key, and a caller that knows of one never finds it taken: a response with an error
 * waits for `free` before, and so does a call that comes for a key that is being freed. Where the database
 * is slow that ends after a moment; the key is freed as soon as it answers.
 */
export class Idempotency {
  readonly #dependencies: IdempotencyDependencies;
  readonly #frees: KeyFrees;
  readonly #running: RunningCalls;

  constructor(dependencies: IdempotencyDependencies) {
    this.#dependencies = dependencies;
    this.#frees = new KeyFrees(dependencies.sql, dependencies.clock);
    this.#running = new RunningCalls(dependencies);
  }

  /**
   * Claims the key, waiting for a call that holds it, or returns the stored result. Throws 409, and 503
   * where the gateway stops meanwhile.
   */
  async claim(claim: IdempotencyClaim, signal: AbortSignal): Promise<Replay | undefined> {
    const { keyring, clock, maxWaitMs, isAborting } = this.#dependencies;
    const beganMs = clock.nowMs();
    const untilMs = beganMs + maxWaitMs;
    for (;;) {
      // A call that was cut short has freed its key, and must not begin again here.
      if (isAborting()) throw stopping();
      const freeing = this.#frees.underWay(claim);
      const outcome = await this.#tryClaim(claim, signal);
      if (outcome.kind === "claimed") return undefined;
      if (outcome.kind === "done") return replayOf(outcome.result, keyring);
      const freed = freeing ?? this.#frees.underWay(claim);
      const hasTime = clock.nowMs() - beganMs < MAX_WAIT_FOR_FREE_MS && !signal.aborted;
      if (freed !== undefined && hasTime) {
        await finishesWithin(freed, clock, FREE_PATIENCE_MS);
        continue;
      }
      if (outcome.kind === "conflict") {
        throw conflict("This idempotency key was used with a different request.");
      }
      if (clock.nowMs() >= untilMs)
        throw conflict("A call with this idempotency key is still running.");
      if (signal.aborted) {
        throw clientClosed();
      }
      await this.#running.ended(claim, signal, untilMs - clock.nowMs());
      if (signal.aborted) throw clientClosed();
    }
  }

  async #tryClaim(claim: IdempotencyClaim, signal: AbortSignal): Promise<ClaimOutcome> {
    const { sql, instance, clock } = this.#dependencies;
    try {
      return await untilReachable(clock, () => claimIdempotencyKey(sql, instance, claim), signal);
    } catch (error) {
      // It may stand there although its answer was lost, or yet come to stand there, and its call ends here.
      const ended = error instanceof DatabaseDeadlineError ? error.ended : Promise.resolve();
      void ended.then(() => this.free(claim));
      throw error;
    }
  }

  /** What keeps the result, to be written with its charge. */
  store(
    claim: IdempotencyClaim,
    status: number,
    headers: Record<string, string>,
    body: Uint8Array | null,
    options: StoreOptions,
  ): StatementEffect {
    const { keyring } = this.#dependencies;
    const kept = body !== null && body.byteLength <= MAX_STORED_RESULT_BYTES ? body : null;
    const sealed = kept && ((keyId: string) => keyring.sealUnder(keyId, kept));
    return storeResultEffect(claim, { status, headers, body: sealed }, keyring, options);
  }

  /** Keeps the result of a call whose charge is still to come. Rejects where the claim is not there any more. */
  async keep(
    claim: IdempotencyClaim,
    status: number,
    headers: Record<string, string>,
    body: Uint8Array,
  ): Promise<void> {
    const effect = this.store(claim, status, headers, body, { isClaimNeeded: true });
    await this.#dependencies.sql.begin((transaction) => effect.run(transaction));
  }

  /** The steps that an earlier call under the key has stored, JSON, and whether they are charged. */
  async takeSteps(
    claim: IdempotencyClaim,
  ): Promise<{ readonly state: unknown; readonly isPaid: boolean } | undefined> {
    const { sql, keyring } = this.#dependencies;
    const found = await takeAnswerSteps(sql, claim);
    if (found === undefined) return undefined;
    const state = JSON.parse(Buffer.from(keyring.open(found.sealed)).toString("utf8"));
    return { state, isPaid: found.isPaid };
  }

  /**
   * Stores the steps of a running call, so that a later one under the key goes on from them. Without a database that
   * answers, or with the claim gone, they are not stored: then it goes on from earlier ones. Never rejects.
   */
  async keepSteps(claim: IdempotencyClaim, plain: Uint8Array): Promise<void> {
    const { clock } = this.#dependencies;
    const storing = this.#storeSteps(claim, plain).catch(() => undefined);
    await finishesWithin(storing, clock, MAX_WAIT_FOR_STEPS_MS);
  }

  async #storeSteps(claim: IdempotencyClaim, plain: Uint8Array): Promise<void> {
    const { sql, keyring } = this.#dependencies;
    const { sealingId } = keyring;
    const sealed = keyring.sealUnder(sealingId, plain);
    const stored = await storeAnswerSteps(sql, claim, sealed, sealingId);
    if (stored.sealingId === sealingId) return;
    keyring.noteSealing(stored.sealingId);
    const again = keyring.sealUnder(stored.sealingId, plain);
    await storeAnswerSteps(sql, claim, again, stored.sealingId);
  }

  /** Resolves when the key is free, or after a moment, and then it will be. Never rejects. */
  async free(claim: IdempotencyClaim): Promise<void> {
    await finishesWithin(this.#frees.free(claim), this.#dependencies.clock, FREE_PATIENCE_MS);
  }

  /** Waits for keys that are being freed, as far as the database answers; the next start frees the rest. */
  close(): Promise<void> {
    return this.#frees.close();
  }
}

function replayOf(result: StoredResult, keyring: Keyring): Replay {
  if (result.body === null) {
    throw conflict("The result of this idempotency key was too large to be kept.");
  }
  return { status: result.status, headers: result.headers, body: keyring.open(result.body) };
}

function conflict(message: string): GatewayError {
  return new GatewayError("idempotency_conflict", message);
}

/**
 * The idempotency key of a request, from its header and its metadata. Throws 400 where they differ or
 * one cannot be a key.
 */
export function idempotencyKeyOf(header: string | null, metadataKey: unknown): string | undefined {
  if (metadataKey !== undefined && metadataKey !== null && typeof metadataKey !== "string") {
    throw new GatewayError("invalid_body", "metadata.idempotency_key must be a string.", {
      param: "metadata.idempotency_key",
    });
  }
  const key = metadataKey ?? header ?? undefined;
  if (key === undefined) return undefined;
  if (header !== null && metadataKey && header !== metadataKey) {
    throw new GatewayError(
      "invalid_body",
      "The Idempotency-Key header and metadata.idempotency_key differ.",
      { param: "metadata.idempotency_key" },
    );
  }
  if (key === "" || key.length > MAX_KEY_CHARACTERS) {
    throw new GatewayError(
      "invalid_body",
      `An idempotency key has 1 to ${MAX_KEY_CHARACTERS} characters.`,
      { param: key === metadataKey ? "metadata.idempotency_key" : "Idempotency-Key" },
    );
  }
  return key;
}

/** Keys under which releases up to 0.1 called lines of batches and chunks of files, next to those of clients. */
const OF_FORMER_RELEASE = /^(?:client:)*(?:batch|vsf)_[0-9a-f]+:\d+$/;

/**
 * The name under which a client's key is stored. A key that reads as one of those gets a prefix, so that no client's
 * answer is taken for that of a line or a chunk.
 */
export function storedKeyOf(clientKey: string): string {
  return OF_FORMER_RELEASE.test(clientKey) ? `client:${clientKey}` : clientKey;
}

/** SHA-256 of the route and the body, hex. */
export function bodyHash(route: string, bodyText: string): string {
  return createHash("sha256").update(route).update("\n").update(bodyText).digest("hex");
}
