import type { Deadline, DeadlineQueue } from "../../lib/deadline-queue.ts";
import { clientClosed, GatewayError, stopping } from "../../lib/errors.ts";
import { usdNumber, usdText } from "../../lib/money.ts";
import { CallAbort } from "../../providers/call-abort.ts";
import { type ChatAnswer, ProviderFailure } from "../../providers/interface.ts";
import { type Usage, usageBody } from "../billing/usage.ts";
import type { Idempotency } from "../idempotency/idempotency.ts";
import type { MoneyPort } from "../money/interface.ts";
import {
  type CallDependencies,
  type CandidateCall,
  callCandidates,
  type Served,
} from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";
import { bothEffects, type ChargeEvents } from "./charge-events.ts";
import {
  chargeFigures,
  estimatedUsage,
  noteCandidate,
  noteCharge,
  settlementFigures,
} from "./chat-meter.ts";
import { estimatedPromptTokens } from "./cost-bound.ts";
import { type Completion, normaliseCompletion } from "./normalise-completion.ts";
import {
  type AdmittedChat,
  answerHeaders,
  type ChatOutcome,
  explainFailure,
  sentOutputTokens,
} from "./prepared-chat.ts";
import { providerBody } from "./provider-body.ts";
import { ProviderCall } from "./provider-call.ts";

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

/** An unstreamed chat completion: it leaves after its charge is durable. */
export async function completeChat(
  dependencies: CompleteChatDependencies,
  chat: AdmittedChat,
): Promise<ChatOutcome> {
  const run = new CompletionRun(dependencies, chat);
  try {
    if (chat.clientSignal.aborted) throw clientClosed();
    const served = await callCandidates(dependencies.calls, chat.plan.candidates, run.abort, run);
    served.end(true);
    run.isAnswered = true;
    return await settleCompletion(dependencies, chat, served, run.trail);
  } catch (error) {
    // Where a charge is under way or durable this does nothing.
    dependencies.money.release(chat.hold);
    explainFailure(chat, run.trail);
    if (run.refusal !== undefined) throw run.refusal;
    if (!run.isExpired) throw error;
    throw dependencies.isCutShort() ? stopping() : expired(error);
  } finally {
    run.end();
  }
}

function expired(cause: unknown): GatewayError {
  return new GatewayError("provider_timeout", "The provider did not respond in time.", { cause });
}

/** The calls of one completion, and what may end them early: the client, and the total timeout. */
class CompletionRun implements CandidateCall<ChatAnswer, Completion>, EventListenerObject {
  readonly abort = new CallAbort();
  readonly trail: string[] = [];
  isExpired = false;
  isAnswered = false;
  /** Why the hold was refused after the call had begun. */
  refusal: unknown;
  readonly #calls: CallDependencies;
  readonly #chat: AdmittedChat;
  readonly #deadline: Deadline;
  readonly #isCutShort: () => boolean;

  constructor({ calls, deadlines, isCutShort }: CompleteChatDependencies, chat: AdmittedChat) {
    this.#calls = calls;
    this.#isCutShort = isCutShort;
    this.#chat = chat;
    chat.clientSignal.addEventListener("abort", this);
    chat.hold.confirmed?.catch((error) => {
      this.refusal = error;
      this.abort.abort();
    });
    this.#deadline = deadlines.add(() => {
      this.isExpired = true;
      this.abort.abort();
    });
  }

  /** The client went away. */
  handleEvent(): void {
    this.abort.abort();
  }

  start(candidate: Candidate): Promise<ChatAnswer> {
    const chat = this.#chat;
    noteCandidate(chat.log, candidate);
    const body = providerBody(chat.request, candidate.upstreamModel, sentOutputTokens(chat));
    const call = new ProviderCall(candidate.upstreamModel, body, chat.requestId, this.abort);
    return candidate.provider.chat(call).catch((error) => {
      // Not the caller's doing: an endpoint that never answers must not pass for a healthy one.
      if (!this.isExpired || this.#isCutShort()) throw error;
      throw new ProviderFailure("timeout", "the provider did not answer in time", { cause: error });
    });
  }

  accept(answer: ChatAnswer): Completion {
    return normaliseCompletion(completionOf(answer), {
      hidesReasoning: this.#chat.hidesReasoning,
      nowSeconds: Math.floor(this.#calls.clock.nowMs() / 1_000),
    });
  }

  end(): void {
    this.#deadline.cancel();
    this.#chat.clientSignal.removeEventListener("abort", this);
    if (!this.isAnswered) this.#chat.log.costNano = 0n;
  }
}

async function settleCompletion(
  { money, idempotency, events }: CompleteChatDependencies,
  chat: AdmittedChat,
  { answer: completion, candidate }: Served<Completion>,
  trail: readonly string[],
): Promise<ChatOutcome> {
  const { hold, log } = chat;
  const usage = completion.usage ?? estimateOf(chat, completion, candidate);
  const latencyMs = performance.now() - chat.startedMs;
  const figures = chargeFigures(
    {
      hold,
      model: candidate.model,
      providerId: candidate.providerId,
      latencyMs,
      details: chat.details,
    },
    usage,
  );
  const { chargeNano } = figures;
  noteCharge(log, figures);
  const { body: answered } = completion;
  answered.id = `chatcmpl-${chat.requestId.slice(4)}`;
  answered.model = candidate.model.id;
  answered.usage = usageBody(usage, usdNumber(chargeNano));
  const body = JSON.stringify(answered);
  const headers = answerHeaders(chat, candidate, trail);
  headers["content-type"] = "application/json";
  headers["x-gateway-latency-ms"] = String(figures.latencyMs);
  headers["x-gateway-cost"] = usdText(chargeNano);
  const isGone = chat.clientSignal.aborted;
  const stored =
    chat.claim === undefined || isGone
      ? undefined
      : idempotency.store(chat.claim, 200, headers, new TextEncoder().encode(body));
  const settled = settlementFigures(figures, isGone ? 499 : 200);
  const wanted = events?.ofCharge(hold, settled, isGone ? "client_closed_request" : undefined);
  const event = wanted instanceof Promise ? await wanted : wanted;
  await money.settle(hold, settled, bothEffects(stored, event));
  if (event !== undefined) events!.noteWritten();
  if (isGone) throw clientClosed();
  return { kind: "json", headers, body };
}

function completionOf(answer: ChatAnswer): unknown {
  if (answer.kind === "completion") return answer.completion;
  throw new ProviderFailure(
    "unavailable",
    "the provider streamed an answer that was not to be streamed",
  );
}

function estimateOf(chat: AdmittedChat, completion: Completion, candidate: Candidate): Usage {
  return estimatedUsage(
    estimatedPromptTokens(chat.size, candidate.model),
    completion.estimatedTokens,
  );
}
