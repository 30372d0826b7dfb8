import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { payAnswerStepsEffect, removeAnswerStepsEffect } from "../../../db/queries/answer-steps.ts";
import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type { Usage } from "../../lib/usage.ts";
import type { CallCharge } from "./call-charge.ts";
import type { EarlierSteps, StepBound, WholeAnswerSteps } from "./endpoint.ts";
import type { Idempotency } from "./idempotency/idempotency.ts";
import type { Candidate } from "./routing/plan-route.ts";

/**
 * UTF-8 bytes of JSON. Steps above this size are not stored; a later call then continues from earlier steps.
 */
const MAX_STATE_BYTES = 2_097_152;

/** The endpoint that made the steps. No other endpoint can continue from them. */
interface StepsServer {
  readonly model: string;
  readonly endpoint: string;
  readonly byokKey: string | null;
}

interface StoredState {
  readonly server: StepsServer;
  readonly state: unknown;
}

/**
 * The steps of a whole answer that needs several provider calls. Nothing is delivered or charged before the
 * whole answer is sent. Under an idempotency key the steps are stored. If this call does not complete, the
 * next call continues from them.
 */
export class WholeSteps implements WholeAnswerSteps {
  readonly #charge: CallCharge;
  readonly #idempotency: Idempotency;
  readonly #claim: IdempotencyClaim | undefined;
  #earlier: (StoredState & { readonly isPaid: boolean }) | undefined;
  #areStored = false;

  constructor(charge: CallCharge, idempotency: Idempotency, claim: IdempotencyClaim | undefined) {
    this.#charge = charge;
    this.#idempotency = idempotency;
    this.#claim = claim;
  }

  /** Loads the stored steps of an earlier call under the key. */
  async load(): Promise<void> {
    if (this.#claim === undefined) return;
    const stored = await this.#idempotency.loadSteps(this.#claim);
    if (stored === undefined) return;
    this.#areStored = true;
    this.#earlier = { ...(stored.state as StoredState), isPaid: stored.isPaid };
  }

  /** Returns the candidates, with the candidate of the earlier steps first. */
  inOrder(candidates: readonly Candidate[]): readonly Candidate[] {
    const before = candidates.find((candidate) => this.#hasServed(candidate));
    if (before === undefined || before === candidates[0]) return candidates;
    return [before, ...candidates.filter((candidate) => candidate !== before)];
  }

  earlier(candidate: Candidate): EarlierSteps | undefined {
    return this.#hasServed(candidate) ? this.#earlier : undefined;
  }

  /** Does nothing, because steps deliver nothing. */
  checkpoint(): Promise<void> {
    return Promise.resolve();
  }

  reserveStep(candidate: Candidate, usage: Usage, step: StepBound): Promise<boolean> {
    return this.#charge.cover(candidate, usage, step);
  }

  async store(candidate: Candidate, state: unknown): Promise<void> {
    if (this.#claim === undefined) return;
    const stored: StoredState = { server: serverOf(candidate), state };
    const plain = new TextEncoder().encode(JSON.stringify(stored));
    if (plain.length > MAX_STATE_BYTES) return;
    this.#areStored = true;
    await this.#idempotency.storeSteps(this.#claim, plain);
  }

  /**
   * The effect that removes stored steps, written with the charge of the whole answer. Undefined if no steps
   * are stored.
   */
  get removal(): StatementEffect | undefined {
    return this.#areStored ? removeAnswerStepsEffect(this.#claim!) : undefined;
  }

  /**
   * The effect that marks stored steps as charged, written with their charge after a disconnect of the
   * client. Undefined if no steps are stored.
   */
  get payment(): StatementEffect | undefined {
    return this.#areStored ? payAnswerStepsEffect(this.#claim!) : undefined;
  }

  #hasServed(candidate: Candidate): boolean {
    const server = this.#earlier?.server;
    if (server === undefined) return false;
    const { model, endpoint, byokKey } = serverOf(candidate);
    return server.model === model && server.endpoint === endpoint && server.byokKey === byokKey;
  }
}

function serverOf({ model, endpointId, byokKeyId }: Candidate): StepsServer {
  return { model: model.id, endpoint: endpointId, byokKey: byokKeyId ?? null };
}
