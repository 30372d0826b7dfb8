import type { Deadline, DeadlineQueue } from "../../lib/deadline-queue.ts";
import { clientClosed, GatewayError } from "../../lib/errors.ts";
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
import { chargeFigures, estimatedUsage, noteCharge, settlementFigures } from "./chat-meter.ts";
import { estimatedPromptTokens } from "./cost-bound.ts";
import { type Completion, normaliseCompletion } from "./normalise-completion.ts";
import {
  type AdmittedChat,
  answerHeaders,
  type ChatOutcome,
  sentOutputTokens,
} from "./prepared-chat.ts";
import { providerBody } from "./provider-body.ts";
import { ProviderCall } from "./provider-call.ts";

export interface CompleteChatDependencies {
  readonly money: MoneyPort;
  readonly calls: CallDependencies;
  readonly idempotency: Idempotency;
  /** The total timeout of calls. */
  readonly deadlines: DeadlineQueue;
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
    return await settleCompletion(dependencies, chat, served);
  } catch (error) {
    // Where a charge is under way or durable this does nothing.
    dependencies.money.release(chat.hold);
    throw run.isExpired ? expired(error) : error;
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
  isExpired = false;
  isAnswered = false;
  readonly #calls: CallDependencies;
  readonly #chat: AdmittedChat;
  readonly #deadline: Deadline;

  constructor({ calls, deadlines }: CompleteChatDependencies, chat: AdmittedChat) {
    this.#calls = calls;
    this.#chat = chat;
    chat.clientSignal.addEventListener("abort", this);
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
    const body = providerBody(chat.request, candidate.upstreamModel, sentOutputTokens(chat));
    return candidate.provider.chat(
      new ProviderCall(candidate.upstreamModel, body, chat.requestId, this.abort),
    );
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
  { money, idempotency }: CompleteChatDependencies,
  chat: AdmittedChat,
  { answer: completion, candidate, trail }: Served<Completion>,
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
  await money.settle(hold, settlementFigures(figures, isGone ? 499 : 200), stored);
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
