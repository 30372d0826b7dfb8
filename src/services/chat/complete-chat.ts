import type { DeadlineQueue } from "../../lib/deadline-queue.ts";
import { clientClosed, GatewayError, stopping } from "../../lib/errors.ts";
import { usdNumber, usdText } from "../../lib/money.ts";
import { type ChatAnswer, ProviderFailure } from "../../providers/interface.ts";
import { type Usage, usageBody } from "../billing/usage.ts";
import type { Idempotency } from "../idempotency/idempotency.ts";
import type { MoneyPort } from "../money/interface.ts";
import { type CallDependencies, callCandidates } from "../routing/call-candidates.ts";
import type { Candidate } from "../routing/plan-route.ts";
import { bothEffects, type ChargeEvents } from "./charge-events.ts";
import { chargeFigures, estimatedUsage, noteCharge, settlementFigures } from "./chat-meter.ts";
import { estimatedPromptTokens } from "./cost-bound.ts";
import { type Completion, normaliseCompletion } from "./normalise-completion.ts";
import {
  type AdmittedChat,
  admissionHeaders,
  type ChatOutcome,
  routeHeaders,
  sentOutputTokens,
} from "./prepared-chat.ts";
import { providerBody } from "./provider-body.ts";

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
  const { money, calls } = dependencies;
  const { hold, log, request } = chat;
  const abort = new AbortController();
  let isExpired = false;
  const stop = () => abort.abort();
  chat.clientSignal.addEventListener("abort", stop);
  let refusal: unknown;
  hold.confirmed?.catch((error) => {
    refusal = error;
    abort.abort();
  });
  const deadline = dependencies.deadlines.add(() => {
    isExpired = true;
    abort.abort();
  });
  let isAnswered = false;
  try {
    if (chat.clientSignal.aborted) {
      throw clientClosed();
    }
    const served = await callCandidates(
      calls,
      chat.plan.candidates,
      abort.signal,
      async (candidate) => {
        const answer = await candidate.provider.chat({
          model: candidate.upstreamModel,
          body: providerBody(request, candidate.upstreamModel, sentOutputTokens(chat)),
          stream: false,
          requestId: chat.requestId,
          signal: abort.signal,
        });
        return normaliseCompletion(completionOf(answer), {
          hidesReasoning: chat.hidesReasoning,
          nowSeconds: Math.floor(calls.clock.nowMs() / 1_000),
        });
      },
    );
    served.end(true);
    isAnswered = true;
    return await settleCompletion(
      dependencies,
      chat,
      served.answer,
      served.candidate,
      served.trail,
    );
  } catch (error) {
    // Where a charge is under way or durable this does nothing.
    money.release(hold);
    if (refusal !== undefined) throw refusal;
    if (isExpired) {
      if (dependencies.isCutShort()) throw stopping();
      throw new GatewayError("provider_timeout", "The provider did not respond in time.", {
        cause: error,
      });
    }
    throw error;
  } finally {
    deadline.cancel();
    chat.clientSignal.removeEventListener("abort", stop);
    if (!isAnswered) log.costNano = 0n;
  }
}

async function settleCompletion(
  { money, idempotency, events }: CompleteChatDependencies,
  chat: AdmittedChat,
  completion: Completion,
  candidate: Candidate,
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
  const body = JSON.stringify({
    ...completion.body,
    id: `chatcmpl-${chat.requestId.slice(4)}`,
    model: candidate.model.id,
    choices: completion.choices,
    usage: usageBody(usage, usdNumber(chargeNano)),
  });
  const headers = {
    ...admissionHeaders(chat),
    ...routeHeaders(chat, candidate, trail),
    "content-type": "application/json",
    "x-gateway-latency-ms": String(Math.round(latencyMs)),
    "x-gateway-cost": usdText(chargeNano),
  };
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
