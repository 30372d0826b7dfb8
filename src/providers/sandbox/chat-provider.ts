import type { Clock } from "../../lib/clock.ts";
import { chatFieldsOf } from "../chat-fields.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type ChatProvider,
  ProviderFailure,
} from "../interface.ts";
import { OpenAiCompletion, OpenAiStream } from "../openai/chat/raw-answers.ts";
import { asCompletion, asEvents, type PlannedEvent } from "./answer-shape.ts";
import { sandboxEmbed } from "./embeddings.ts";
import { type SandboxAnswer, sandboxPlan } from "./plan-answer.ts";
import { partsOfTunedName, type SandboxTunedModels } from "./tuning/tuned-models.ts";
import { aborted, waitOn } from "./wait.ts";

/** Before each token of `slow`. */
export const SLOW_TOKEN_DELAY_MS = 50;
/** The Retry-After of `error-429`. */
export const DRILL_RETRY_AFTER_MS = 1_000;
/** The tokens of `cut` that arrive. */
export const CUT_AFTER_TOKENS = 3;

interface Pacing {
  /** Before each token. */
  readonly tokenDelayMs: number;
  readonly breaksAfterTokens: number;
}

const STEADY: Pacing = { tokenDelayMs: 0, breaksAfterTokens: Number.POSITIVE_INFINITY };

/** The chat models that answer. `slow` and `cut` are for failure drills. */
const PACINGS: ReadonlyMap<string, Pacing> = new Map([
  ["chat", STEADY],
  ["chat-2026-01-01", STEADY],
  ["slow", { ...STEADY, tokenDelayMs: SLOW_TOKEN_DELAY_MS }],
  ["cut", { ...STEADY, breaksAfterTokens: CUT_AFTER_TOKENS }],
]);

export interface SandboxDependencies {
  readonly clock: Clock;
  /** Without it there are no tuned models. */
  readonly tunedModels?: SandboxTunedModels;
}

/**
 * A built-in provider for trials and failure drills, not a language model. It answers the same request in the
 * same way, except `created` and the id, and sends nothing anywhere. Models are named with or without
 * `sandbox/`.
 */
export function createSandboxProvider(dependencies: SandboxDependencies): ChatProvider {
  const { clock, tunedModels } = dependencies;
  return {
    fields: chatFieldsOf("sandbox"),
    embed: sandboxEmbed,
    async chat(call) {
      if (call.signal.aborted) throw aborted(call.signal);
      const name = call.model.replace(/^sandbox\//, "");
      const tuned = partsOfTunedName(name);
      const pacing = PACINGS.get(tuned?.base ?? name);
      if (pacing === undefined) throw failureDrill(name);
      const learned = tuned && (await tunedModels?.find(tuned.tuningId));
      if (tuned !== undefined && learned === undefined) throw failureDrill(name);
      const plan = call.body.render(sandboxPlan, { learned }, call.abortNotice ?? call.signal);
      return answer(call, pacing, clock, plan instanceof Promise ? await inTime(plan, call) : plan);
    },
  };
}

async function inTime(plan: Promise<SandboxAnswer>, { signal }: ChatCall): Promise<SandboxAnswer> {
  try {
    return await plan;
  } catch (error) {
    throw signal.aborted ? aborted(signal) : error;
  }
}

async function answer(
  call: ChatCall,
  pacing: Pacing,
  clock: Clock,
  plan: SandboxAnswer,
): Promise<ChatAnswer> {
  const { choices, usage, includeUsage, alternatives } = plan;
  const options = { alternatives };
  const head = {
    id: `chatcmpl-${call.requestId}`,
    created: Math.floor(clock.nowMs() / 1000),
    model: call.model,
  };
  if (call.stream) {
    const events = asEvents(head, choices, includeUsage ? usage : undefined, options);
    return new OpenAiStream({ body: asEventStream(events, pacing, clock, call.signal) });
  }
  if (pacing.breaksAfterTokens < usage.completion_tokens) {
    throw new ProviderFailure("unavailable", "the answer broke off");
  }
  if (pacing.tokenDelayMs > 0) {
    await waitOn(clock, pacing.tokenDelayMs * usage.completion_tokens, call.signal);
  }
  return new OpenAiCompletion(asCompletion(head, choices, usage, options));
}

function failureDrill(name: string): ProviderFailure {
  if (name === "error-429") {
    return new ProviderFailure("rate_limited", "the sandbox refuses this model for its rate", {
      status: 429,
      retryAfterMs: DRILL_RETRY_AFTER_MS,
    });
  }
  if (name === "error-500") {
    return new ProviderFailure("unavailable", "the sandbox fails this model", { status: 500 });
  }
  return new ProviderFailure("misconfigured", `the sandbox has no chat model "${name}"`, {
    status: 404,
  });
}

/**
 * Sends one server-sent event for each pull, for backpressure, and `[DONE]` at the end. Errors with
 * ProviderFailure if it is aborted or its pacing says that it breaks.
 */
function asEventStream(
  events: Iterator<PlannedEvent>,
  pacing: Pacing,
  clock: Clock,
  signal: AbortSignal,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const cancelled = new AbortController();
  const stop = AbortSignal.any([signal, cancelled.signal]);
  let tokens = 0;

  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (signal.aborted) return controller.error(aborted(signal));
      const next = events.next();
      if (next.done === true) {
        controller.enqueue(encoder.encode("data: [DONE]\n\n"));
        return controller.close();
      }
      if (next.value.isToken && tokens++ >= pacing.breaksAfterTokens) {
        return controller.error(new ProviderFailure("unavailable", "the stream broke off"));
      }
      if (next.value.isToken && pacing.tokenDelayMs > 0) {
        try {
          await waitOn(clock, pacing.tokenDelayMs, stop);
        } catch (failure) {
          return controller.error(failure);
        }
      }
      controller.enqueue(encoder.encode(`data: ${JSON.stringify(next.value.chunk)}\n\n`));
    },
    cancel() {
      cancelled.abort();
    },
  });
}
