import { isRunning } from "../../../db/queries/background-responses.ts";
import { asGatewayError } from "../../../db/unavailable.ts";
import { ERROR_TABLE } from "../../http/error-response.ts";
import { ChangeListeners } from "../../lib/change-listeners.ts";
import type { Clock } from "../../lib/clock.ts";
import { clientClosed } from "../../lib/errors.ts";
import type { RequestLifetime, RequestLog } from "../../lib/request-log.ts";
import { admittedHeaders } from "../call/answer-headers.ts";
import type { AcceptedCall, CallOutcome, StoreResult } from "../call/call.ts";
import type { AcceptedResponse, AdmittedResponse } from "../endpoints/responses/accepted.ts";
import type { ResponsesCall } from "../endpoints/responses/endpoint.ts";
import {
  nameOfResponse,
  responseHead,
  responseId,
  withOutput,
} from "../endpoints/responses/response-json.ts";
import type { ResponseStoreWriter } from "../endpoints/responses/response-store-writer.ts";
import { BackgroundRun } from "./background-run.ts";
import type { BackgroundStore } from "./background-store.ts";

interface BackgroundRunsDependencies {
  readonly store: BackgroundStore;
  readonly clock: Clock;
  onError(error: unknown): void;
}

/** The answer to a request for a background response. */
export type BegunOutcome =
  | {
      readonly kind: "begun";
      readonly id: string;
      readonly json: string;
      readonly headers: Record<string, string>;
    }
  | Extract<CallOutcome, { readonly kind: "replay" }>;

/** The longest wait of a cancel request for the end of the response. */
const MAX_CANCEL_WAIT_MS = 10_000;
const POLL_MS = 250;

/** The background responses that this instance runs. */
export class BackgroundRuns {
  /** Notifies the followers of responses, on whatever instance the responses run. */
  readonly listeners = new ChangeListeners();
  readonly #dependencies: BackgroundRunsDependencies;
  readonly #running = new Map<string, BackgroundRun>();

  constructor(dependencies: BackgroundRunsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Returns true if the response runs on this instance. */
  has(id: string): boolean {
    return this.#running.has(id);
  }

  /** Cancels a response if it runs on this instance. */
  cancel(id: string): void {
    this.#running.get(id)?.cancel();
  }

  /** Checks for cancel requests whose notifications were possibly missed. */
  recheck(): void {
    const ids = [...this.#running.keys()];
    if (ids.length === 0) return;
    const { store, onError } = this.#dependencies;
    store.cancelledAmong(ids).then(
      (cancelled) => cancelled.forEach((id) => void this.cancel(id)),
      (error) => onError(error),
    );
  }

  /**
   * Runs a call to its end. Resolves when the response has begun: money is held for it, and it can be
   * retrieved by its id. Rejects with the error that rejects the request. The request counts as running until
   * the call ends, which finishes its log.
   */
  start(
    call: ResponsesCall,
    accepted: AcceptedCall<AcceptedResponse>,
    storeWriter: ResponseStoreWriter,
  ): Promise<BegunOutcome> {
    const begun = Promise.withResolvers<BegunOutcome>();
    void this.#run(call, accepted, storeWriter, begun);
    return begun.promise;
  }

  async #run(
    call: ResponsesCall,
    accepted: AcceptedCall<AcceptedResponse>,
    storeWriter: ResponseStoreWriter,
    begun: PromiseWithResolvers<BegunOutcome>,
  ): Promise<void> {
    const { store, clock, onError } = this.#dependencies;
    const { requestId, request, clientSignal } = accepted;
    const id = responseId(nameOfResponse(requestId));
    const run = new BackgroundRun({
      ...{ store, clock, id, organizationId: accepted.caller.key.organizationId },
      keyId: accepted.caller.key.id,
      progress: request.background!,
      chainPosition: request.position,
      onWritten: () => this.listeners.notice(id),
      onError,
    });
    // Cancels if the client disconnects before the response has begun.
    const leave = () => run.cancel();
    clientSignal.addEventListener("abort", leave);
    if (clientSignal.aborted) leave();
    const { promise: callEnd, resolve: finish } = Promise.withResolvers<void>();
    const log: RequestLog = {};
    const lifetime: RequestLifetime = {
      finish,
      releaseBody: () => accepted.lifetime.releaseBody?.(),
    };
    let hasBegun = false;
    this.#running.set(id, run);
    try {
      const outcome = await call.run({
        // No headers, because a cached answer leaves nothing to run in the background.
        ...{ ...accepted, log, lifetime, headers: undefined },
        // A redacted request is a copy. It shares the progress object of the original request.
        applyGuardrails: async (guard) =>
          Object.assign(await accepted.applyGuardrails!(guard), { background: request.background }),
        clientSignal: run.signal,
        begin: async (admitted, storeResult) => {
          if (run.signal.aborted) throw clientClosed();
          const json = await this.#begin(run, admitted, storeWriter, storeResult);
          clientSignal.removeEventListener("abort", leave);
          hasBegun = true;
          begun.resolve({ kind: "begun", id, json, headers: admittedHeaders(admitted) });
        },
      });
      if (outcome.kind === "replay") begun.resolve(outcome);
      if (outcome.kind === "stream") {
        await Promise.race([run.writeEvents(outcome.body), callEnd]);
        await callEnd;
      }
    } catch (error) {
      const failure = asGatewayError(error);
      if (hasBegun) log.status ??= ERROR_TABLE[failure.code].status;
      run.fail(failure);
      begun.reject(error);
    }
    clientSignal.removeEventListener("abort", leave);
    if (run.mayBeStored) await run.end();
    this.#running.delete(id);
    this.listeners.notice(id);
    Object.assign(accepted.log, log);
    const { responseHeaders } = lifetime;
    if (responseHeaders !== undefined) accepted.lifetime.responseHeaders = responseHeaders;
    if (!hasBegun) return;
    // `finish` is set: the response has begun, so its HTTP answer was sent before.
    accepted.lifetime.finish?.();
  }

  /** Stores the response, and the result of its idempotency key. */
  async #begin(
    run: BackgroundRun,
    admitted: AdmittedResponse,
    storeWriter: ResponseStoreWriter,
    storeResult: StoreResult,
  ): Promise<string> {
    const { requestId, request, plan } = admitted;
    const head = responseHead({
      name: nameOfResponse(requestId),
      createdAt: request.createdAt,
      completedAt: null,
      status: "queued",
      model: plan.models[0]!.id,
      usage: null,
      echo: request.facts.echo,
    });
    const json = withOutput(head, "");
    await run.begin(json);
    await storeWriter.storeInput(admitted);
    const headers = { "content-type": "application/json" };
    await storeResult(headers, new TextEncoder().encode(json));
    return json;
  }

  /**
   * Cancels a response on whatever instance runs it, and waits until it has ended. Changes nothing if it has
   * already ended.
   */
  async cancelAnywhere(organizationId: string, id: string): Promise<void> {
    const { store, clock } = this.#dependencies;
    await store.requestCancel(organizationId, id);
    this.cancel(id);
    const untilMs = clock.nowMs() + MAX_CANCEL_WAIT_MS;
    const subscription = this.listeners.open(id, AbortSignal.timeout(MAX_CANCEL_WAIT_MS));
    try {
      while (clock.nowMs() < untilMs) {
        const current = await store.find(organizationId, id);
        if (current === undefined || !isRunning(current.state)) return;
        await subscription.listen(clock, POLL_MS);
      }
    } finally {
      subscription.close();
    }
  }
}
