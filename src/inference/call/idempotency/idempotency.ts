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

/** The largest result that is stored. Larger results are not stored. */
export const MAX_STORED_RESULT_BYTES = 1_048_576;
/**
 * The longest wait of a caller for one try to free a key. An unreachable database delays no caller longer.
 */
const MAX_WAIT_FOR_ONE_FREE_MS = 100;
/** The longest total wait of a new call for its key to be freed. */
const MAX_WAIT_FOR_FREE_MS = 250;
/**
 * The longest wait of an answer for its steps to be stored. After this time the answer continues without
 * them.
 */
const MAX_WAIT_FOR_STEPS_MS = 2_000;

export interface IdempotencyDependencies extends RunningCallsDependencies {
  readonly instance: InstanceIdentity;
  readonly keyring: Keyring;
  /** The longest wait of a second call for the first call. */
  readonly maxWaitMs: number;
}

export interface Replay {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Uint8Array;
}

/**
 * Idempotency keys: a repeated call gives one upstream call, one charge and one result.
 *
 * Errors and disconnects free the key. A caller that has seen the error never finds the key in use: an error
 * response waits for `free`, and a new call for the key waits while it is being freed. If the database is
 * slow, the wait ends after a moment; the key is freed as soon as the database answers.
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
   * Claims the key and returns undefined, or returns the stored result. Waits while another call holds the
   * key. Throws 409 if the key belongs to a different request, if the other call runs too long, or if its
   * result was too large to be stored. Throws 503 if the gateway stops during the wait.
   */
  async claim(claim: IdempotencyClaim, signal: AbortSignal): Promise<Replay | undefined> {
    const { keyring, clock, maxWaitMs, isAborting } = this.#dependencies;
    const beganMs = clock.nowMs();
    const untilMs = beganMs + maxWaitMs;
    for (;;) {
      // A call that was aborted by the shutdown has freed its key, and must not start again here.
      if (isAborting()) throw stopping();
      const freeing = this.#frees.underWay(claim);
      const outcome = await this.#tryClaim(claim, signal);
      if (outcome.kind === "claimed") return undefined;
      if (outcome.kind === "done") return replayOf(outcome.result, keyring);
      const freed = freeing ?? this.#frees.underWay(claim);
      const hasTime = clock.nowMs() - beganMs < MAX_WAIT_FOR_FREE_MS && !signal.aborted;
      if (freed !== undefined && hasTime) {
        await finishesWithin(freed, clock, MAX_WAIT_FOR_ONE_FREE_MS);
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
      await this.#running.untilEnded(claim, signal, untilMs - clock.nowMs());
      if (signal.aborted) throw clientClosed();
    }
  }

  async #tryClaim(claim: IdempotencyClaim, signal: AbortSignal): Promise<ClaimOutcome> {
    const { sql, instance, clock } = this.#dependencies;
    try {
      return await untilReachable(clock, () => claimIdempotencyKey(sql, instance, claim), signal);
    } catch (error) {
      // The claim may have been written although its answer was lost, or may still be written. Its call ends
      // here.
      const ended = error instanceof DatabaseDeadlineError ? error.ended : Promise.resolve();
      void ended.then(() => this.free(claim));
      throw error;
    }
  }

  /** Returns the effect that stores the result. It is written with the charge. */
  storeEffect(
    claim: IdempotencyClaim,
    status: number,
    headers: Record<string, string>,
    body: Uint8Array | null,
    options: StoreOptions,
  ): StatementEffect {
    const { keyring } = this.#dependencies;
    const plain = body !== null && body.byteLength <= MAX_STORED_RESULT_BYTES ? body : null;
    const sealed = plain && ((keyId: string) => keyring.sealUnder(keyId, plain));
    return storeResultEffect(claim, { status, headers, body: sealed }, keyring, options);
  }

  /** Stores the result of a call that is not charged yet. Rejects if the claim no longer exists. */
  async storeWithoutCharge(
    claim: IdempotencyClaim,
    status: number,
    headers: Record<string, string>,
    body: Uint8Array,
  ): Promise<void> {
    const effect = this.storeEffect(claim, status, headers, body, { isClaimNeeded: true });
    await this.#dependencies.sql.begin((transaction) => effect.run(transaction));
  }

  /** Returns the state that an earlier call under the key has stored, and whether its steps are charged. */
  async loadSteps(
    claim: IdempotencyClaim,
  ): Promise<{ readonly state: unknown; readonly isPaid: boolean } | undefined> {
    const { sql, keyring } = this.#dependencies;
    const steps = await takeAnswerSteps(sql, claim);
    if (steps === undefined) return undefined;
    const state = JSON.parse(Buffer.from(keyring.open(steps.sealed)).toString("utf8"));
    return { state, isPaid: steps.isPaid };
  }

  /**
   * Stores the steps of a running call, so that a later call under the key can continue from them. If the
   * database does not answer or the claim no longer exists, the steps are not stored. A later call then
   * continues from earlier steps. Never rejects.
   */
  async storeSteps(claim: IdempotencyClaim, plain: Uint8Array): Promise<void> {
    const { clock } = this.#dependencies;
    const storing = this.#writeSteps(claim, plain).catch(() => undefined);
    await finishesWithin(storing, clock, MAX_WAIT_FOR_STEPS_MS);
  }

  async #writeSteps(claim: IdempotencyClaim, plain: Uint8Array): Promise<void> {
    const { sql, keyring } = this.#dependencies;
    const { sealingId } = keyring;
    const sealed = keyring.sealUnder(sealingId, plain);
    const stored = await storeAnswerSteps(sql, claim, sealed, sealingId);
    if (stored.sealingId === sealingId) return;
    keyring.noteSealing(stored.sealingId);
    const again = keyring.sealUnder(stored.sealingId, plain);
    await storeAnswerSteps(sql, claim, again, stored.sealingId);
  }

  /** Resolves when the key is free, or after a short wait; the key is then freed later. Never rejects. */
  async free(claim: IdempotencyClaim): Promise<void> {
    await finishesWithin(
      this.#frees.free(claim),
      this.#dependencies.clock,
      MAX_WAIT_FOR_ONE_FREE_MS,
    );
  }

  /** Waits for keys that are being freed, while the database answers. The next start frees the rest. */
  close(): Promise<void> {
    return this.#frees.close();
  }
}

function replayOf(result: StoredResult, keyring: Keyring): Replay {
  if (result.body === null) {
    throw conflict("The result of this idempotency key was too large to be stored.");
  }
  return { status: result.status, headers: result.headers, body: keyring.open(result.body) };
}

function conflict(message: string): GatewayError {
  return new GatewayError("idempotency_conflict", message);
}
