import type { Hold, HoldRequest, SettlementFigures } from "../../src/billing/ledger/interface.ts";
import { StreamCheckpoints } from "../../src/inference/call/stream/charge.ts";
import { sleep } from "../../src/lib/clock.ts";
import { clientClosed, GatewayError } from "../../src/lib/errors.ts";
import type { SimulatedGateway } from "./gateway.ts";
import type { RequestPlan } from "./plan.ts";
import type { RequestRecord } from "./request-record.ts";

/** What leaves the gateway, at the moment at which it leaves. */
export interface ClientSide {
  answered(record: RequestRecord): void;
  delivered(record: RequestRecord, tokens: number): void;
  failed(record: RequestRecord, error: GatewayError): void;
}

const EXTENSION_NANO = 5n;
const FEMTO_PER_NANO = 1_000_000n;
const TICK_MS = 250;

/** The way of one request through an instance: admitted, called, metered, settled, as the chat service does. */
export class Front {
  readonly #gateway: SimulatedGateway;
  readonly #client: ClientSide;

  constructor(gateway: SimulatedGateway, client: ClientSide) {
    this.#gateway = gateway;
    this.#client = client;
  }

  async serve(record: RequestRecord): Promise<void> {
    const { disconnectMs } = record.plan;
    const abort = new Abort();
    if (disconnectMs !== undefined) {
      this.#gateway.process.after(disconnectMs, "client gone", () => {
        if (record.end !== undefined) return;
        record.isDisconnected = true;
        abort.raise(clientClosed());
      });
    }
    try {
      await this.#admitAndServe(record, abort);
      if (record.end === undefined) this.#client.answered(record);
    } catch (error) {
      if (!(error instanceof GatewayError) && (error as { code?: string }).code === undefined) {
        if (!(error instanceof Error) || !error.message.startsWith("given up")) throw error;
      }
      const told =
        error instanceof GatewayError
          ? error
          : new GatewayError("internal", "Failed.", { cause: error });
      if (record.end === undefined) this.#client.failed(record, told);
    }
  }

  async #admitAndServe(record: RequestRecord, abort: Abort): Promise<void> {
    await this.#gateway.node.membership.whenFresh();
    const key = await this.#gateway.keys.get(record.plan.keyId).ask("inspect", undefined);
    if (key === undefined) throw new GatewayError("invalid_api_key", "The API key is not valid.");
    if (!key.isActive) throw new GatewayError("key_inactive", "This API key is inactive.");
    const { plan } = record;
    const held = this.#gateway.money.hold(requestOf(plan));
    const hold = held instanceof Promise ? await held : held;
    await this.#extendSome(plan, hold);
    record.holdNano = hold.holdNano;
    record.budgetHoldNano = hold.budgetNano;
    if (plan.isStream) await this.#stream(record, hold, abort);
    else await this.#complete(record, hold, abort);
  }

  /** Every third request asks for a little more while it runs, as a tool loop does. */
  async #extendSome({ fixedNano }: RequestPlan, hold: Hold): Promise<void> {
    if (fixedNano % 3 !== 0) return;
    try {
      await this.#gateway.money.extend(hold, EXTENSION_NANO);
    } catch (error) {
      this.#gateway.money.release(hold);
      throw error;
    }
  }

  async #complete(record: RequestRecord, hold: Hold, abort: Abort): Promise<void> {
    const { money, process, isAnswerAfterCharge } = this.#gateway;
    try {
      await abort.within(sleep(process.clock, record.plan.upstreamMs));
      if (record.plan.upstreamFailure === "at once") throw providerFailure();
      const status = record.isDisconnected ? 499 : 200;
      const charged = money.settle(
        hold,
        this.#figures(record, hold, produced(record.plan, hold), status),
      );
      if (isAnswerAfterCharge) await charged;
      else charged.catch(() => {});
    } catch (error) {
      // Where a charge is under way or durable this does nothing.
      money.release(hold);
      throw error;
    }
  }

  async #stream(record: RequestRecord, hold: Hold, abort: Abort): Promise<void> {
    const { money, process } = this.#gateway;
    const { plan } = record;
    const all = produced(plan, hold);
    let seen = 0;
    const checkpoints = new StreamCheckpoints(() =>
      money.checkpoint(hold, this.#figures(record, hold, seen, 200)),
    );
    try {
      await abort.within(sleep(process.clock, plan.upstreamMs));
      if (plan.upstreamFailure === "at once") throw providerFailure();
      seen = Math.ceil(all / plan.events);
      await checkpoints.cover(seen);
    } catch (error) {
      money.release(hold);
      throw error;
    }
    await this.#whenCurrent();
    if (abort.raised !== undefined) return this.#leave(record, hold, seen);
    this.#client.delivered(record, seen);
    const stopTicking = this.#tick(checkpoints);
    try {
      for (let event = 2; event <= plan.events; event++) {
        await abort.within(sleep(process.clock, plan.eventMs));
        if (plan.upstreamFailure === "cut" && event > plan.events / 2) throw providerFailure();
        seen = Math.min(all, Math.ceil((all * event) / plan.events));
        await checkpoints.admit(seen, process.clock.nowMs());
        await this.#whenCurrent();
        if (abort.raised !== undefined) throw abort.raised;
        this.#client.delivered(record, seen);
      }
    } catch (error) {
      // What was delivered is charged before the failure is reported.
      await money.settle(hold, this.#figures(record, hold, seen, 499)).catch(() => {});
      throw error;
    } finally {
      stopTicking();
    }
    await money.settle(hold, this.#figures(record, hold, all, 200));
  }

  /** An instance that may have been declared dead sends nothing before it knows. */
  async #whenCurrent(): Promise<void> {
    await this.#gateway.node.membership.whenCurrent();
  }

  async #leave(record: RequestRecord, hold: Hold, seen: number): Promise<void> {
    await this.#gateway.money.settle(hold, this.#figures(record, hold, seen, 499)).catch(() => {});
    throw clientClosed();
  }

  #tick(checkpoints: StreamCheckpoints): () => void {
    const { clock } = this.#gateway.process;
    let cancel = (): void => {};
    const next = (): void => {
      cancel = clock.after(TICK_MS, () => {
        checkpoints.tick(clock.nowMs());
        next();
      });
    };
    next();
    return () => cancel();
  }

  #figures(record: RequestRecord, hold: Hold, tokens: number, status: number): SettlementFigures {
    const { isOwn, fixedNano } = record.plan;
    const priceNano = BigInt(fixedNano + tokens);
    const wanted = isOwn ? 0n : priceNano;
    record.chargeNano = wanted < hold.holdNano ? wanted : hold.holdNano;
    return {
      ...(isOwn && { budgetNano: priceNano }),
      promptTokens: 1,
      cachedPromptTokens: 0,
      completionTokens: tokens,
      reasoningTokens: 0,
      quantities: null,
      estimated: false,
      chargeNano: wanted,
      feeNano: wanted / 26n,
      clampedNano: 0n,
      model: "simulated/model",
      provider: "simulated",
      latencyMs: Math.round(this.#gateway.process.clock.nowMs() - hold.admittedAtMs),
      details: null,
      status,
      description: "Chat completion: simulated/model",
    };
  }
}

/** One nano-USD a token, of the balance or of the budgets alone. */
function requestOf(plan: RequestPlan): HoldRequest {
  const { requestId, organizationId, keyId, outputTokens, isLimitExplicit } = plan;
  const subjects = plan.subjects.map((id) => ({
    budgetId: id,
    ...{ type: "user" as const, value: id },
  }));
  const request: HoldRequest = {
    ...{ requestId, organizationId, keyId, outputTokens, isLimitExplicit },
    ...(subjects.length > 0 && { subjects }),
    fixedFemto: BigInt(plan.fixedNano) * FEMTO_PER_NANO,
    perTokenFemto: FEMTO_PER_NANO,
    feeBasisPoints: 0n,
  };
  if (!plan.isOwn) return request;
  return plan.hasFallback
    ? { ...request, budget: request }
    : { ...request, fixedFemto: 0n, perTokenFemto: 0n, budget: request };
}

function produced(plan: RequestPlan, hold: Hold): number {
  return Math.floor(hold.outputTokens * plan.producedShare);
}

function providerFailure(): GatewayError {
  return new GatewayError("provider_error", "The provider failed.");
}

/** Ends waiting, once. */
class Abort {
  raised: GatewayError | undefined;
  readonly #listeners: ((error: GatewayError) => void)[] = [];

  raise(error: GatewayError): void {
    if (this.raised !== undefined) return;
    this.raised = error;
    for (const tell of this.#listeners) tell(error);
  }

  onRaised(tell: (error: GatewayError) => void): void {
    if (this.raised !== undefined) tell(this.raised);
    else this.#listeners.push(tell);
  }

  within(work: Promise<void>): Promise<void> {
    if (this.raised !== undefined) return Promise.reject(this.raised);
    return new Promise((resolve, reject) => {
      this.onRaised(reject);
      work.then(resolve, reject);
    });
  }
}
