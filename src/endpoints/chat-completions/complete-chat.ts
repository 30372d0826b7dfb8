import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { bothEffects, type ChargeEvents } from "../../calls/completion-events.ts";
import type { Idempotency } from "../../calls/idempotency/idempotency.ts";
import { type CallDependencies, CandidateTries } from "../../calls/routing/call-candidates.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { DeadlineQueue, Expiring } from "../../lib/deadline-queue.ts";
import { clientClosed, GatewayError, stopping } from "../../lib/errors.ts";
import { usdNumber, usdText } from "../../lib/money.ts";
import type { MoneyPort, SettlementFigures } from "../../money/interface.ts";
import {
  type ChatAnswer,
  type ClientCompletion,
  ProviderFailure,
} from "../../providers/interface.ts";
import {
  chargeFigures,
  estimatedUsage,
  type MeteredFigures,
  noteCandidate,
  noteCharge,
  settlementFigures,
} from "./chat-meter.ts";
import { estimatedPromptTokens } from "./cost-bound.ts";
import {
  type AdmittedChat,
  answerHeaders,
  type ChatOutcome,
  explainFailure,
  sentOutputTokens,
} from "./prepared-chat.ts";
import { providerBody } from "./provider-body.ts";
import { ProviderCall } from "./provider-call.ts";
import { completionId, readAnswer, usageBody } from "./render-answer.ts";

export interface CompleteChatDependencies {
  readonly money: MoneyPort;
  readonly calls: CallDependencies;
  readonly idempotency: Idempotency;
  readonly events?: ChargeEvents | undefined;
  /** The total timeout of calls. */
  readonly deadlines: DeadlineQueue;
  /** True once the process ends and deadlines expire for that. */
  isCutShort(): boolean;
}

type JsonOutcome = Extract<ChatOutcome, { readonly kind: "json" }>;

/** An unstreamed chat completion: it leaves after its charge is durable. */
export async function completeChat(
  dependencies: CompleteChatDependencies,
  chat: AdmittedChat,
): Promise<ChatOutcome> {
  const run = new CompletionRun(dependencies, chat);
  const { tries } = run;
  try {
    if (chat.clientSignal.aborted) throw clientClosed();
    let completion: ClientCompletion | undefined;
    while (completion === undefined) {
      const next = tries.next();
      const candidate = next instanceof Promise ? await next : next;
      try {
        completion = run.read(await run.start(candidate));
      } catch (error) {
        tries.failed(run.failureOf(error));
      }
    }
    tries.answered();
    tries.end(true);
    run.isAnswered = true;
    const outcome = run.outcomeOf(completion);
    await run.settle(outcome);
    if (run.isGone) throw clientClosed();
    return outcome;
  } catch (error) {
    // Where a charge is under way or durable this does nothing.
    dependencies.money.release(chat.hold);
    explainFailure(chat, tries);
    if (!run.isExpired) throw error;
    throw dependencies.isCutShort() ? stopping() : expired(error);
  } finally {
    run.end();
  }
}

function expired(cause: unknown): GatewayError {
  return new GatewayError("provider_timeout", "The provider did not respond in time.", { cause });
}

/** One completion: its calls, what may end them early (the client, and the total timeout), its charge. */
class CompletionRun extends ProviderCall implements EventListenerObject, Expiring {
  readonly tries: CandidateTries;
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  isExpired = false;
  isAnswered = false;
  /** The client had gone when the answer was ready. */
  isGone = false;
  readonly #dependencies: CompleteChatDependencies;
  readonly #chat: AdmittedChat;
  #figures: MeteredFigures | undefined;

  constructor(dependencies: CompleteChatDependencies, chat: AdmittedChat) {
    super(chat.requestId, false);
    this.#dependencies = dependencies;
    this.#chat = chat;
    this.tries = new CandidateTries(dependencies.calls, chat.plan.candidates, this);
    chat.clientSignal.addEventListener("abort", this);
    dependencies.deadlines.set(this);
  }

  /** The client went away. */
  handleEvent(): void {
    this.abort();
  }

  /** The total timeout. */
  expire(): void {
    this.isExpired = true;
    this.abort();
  }

  start(candidate: Candidate): Promise<ChatAnswer> {
    const chat = this.#chat;
    noteCandidate(chat.log, candidate);
    this.model = candidate.upstreamModel;
    this.modelId = candidate.model.canonicalId ?? candidate.model.id;
    this.onNewConnection = this.tries.onNewConnection;
    this.body = providerBody(
      chat.request,
      candidate,
      sentOutputTokens(chat, candidate),
      chat.plan.lacked,
    );
    return candidate.provider.chat!(this);
  }

  /** Throws ProviderFailure where the answer is none. */
  read(answer: ChatAnswer): ClientCompletion {
    const nowSeconds = Math.floor(this.#dependencies.calls.clock.nowMs() / 1_000);
    const { requestId, hidesReasoning } = this.#chat;
    return readAnswer(answer, { requestId, hidesReasoning, nowSeconds });
  }

  failureOf(error: unknown): unknown {
    // Not the caller's doing: an endpoint that never answers must not pass for a healthy one.
    if (!this.isExpired || this.#dependencies.isCutShort()) return error;
    return new ProviderFailure("timeout", "the provider did not answer in time", { cause: error });
  }

  /** What the client gets, once it is charged. */
  outcomeOf(completion: ClientCompletion): JsonOutcome {
    const chat = this.#chat;
    const { candidate } = this.tries;
    const usage =
      completion.usage ??
      estimatedUsage(estimatedPromptTokens(chat.size, candidate.terms), completion.estimatedTokens);
    const latencyMs = performance.now() - chat.startedMs;
    const figures = chargeFigures(chat.hold, candidate, usage, latencyMs, chat.details);
    this.#figures = figures;
    noteCharge(chat.log, figures);
    const { body } = completion;
    body.id = completionId(chat.requestId);
    body.model = candidate.model.id;
    body.usage = usageBody(usage, usdNumber(figures.chargeNano));
    const headers = answerHeaders(chat, candidate, this.tries);
    headers["content-type"] = "application/json";
    headers["x-gateway-latency-ms"] = String(figures.latencyMs);
    headers["x-gateway-cost"] = usdText(figures.chargeNano);
    return { kind: "json", headers, body: JSON.stringify(body) };
  }

  /** Resolves when the charge is durable, and with it what is kept of the answer. */
  settle(outcome: JsonOutcome): Promise<void> {
    const { idempotency, events } = this.#dependencies;
    const { claim, hold, clientSignal } = this.#chat;
    this.isGone = clientSignal.aborted;
    const stored =
      claim === undefined || this.isGone
        ? undefined
        : idempotency.store(claim, 200, outcome.headers, new TextEncoder().encode(outcome.body), {
            isClaimNeeded: true,
          });
    const settled = settlementFigures(this.#figures!, this.isGone ? 499 : 200);
    const errorCode = this.isGone ? "client_closed_request" : undefined;
    const wanted = events?.ofCharge(hold, settled, errorCode);
    return wanted === undefined
      ? this.#dependencies.money.settle(hold, settled, stored)
      : this.#settleWithEvent(settled, stored, wanted);
  }

  async #settleWithEvent(
    settled: SettlementFigures,
    stored: StatementEffect | undefined,
    wanted: StatementEffect | undefined | Promise<StatementEffect | undefined>,
  ): Promise<void> {
    const { money, events } = this.#dependencies;
    const event = await wanted;
    await money.settle(this.#chat.hold, settled, bothEffects(stored, event));
    if (event !== undefined) events!.noteWritten();
  }

  end(): void {
    this.#dependencies.deadlines.cancel(this);
    this.#chat.clientSignal.removeEventListener("abort", this);
    if (!this.isAnswered) this.#chat.log.costNano = 0n;
  }
}
