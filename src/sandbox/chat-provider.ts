import type { Clock } from "../lib/clock.ts";
import { chatFieldsOf } from "../providers/chat-fields.ts";
import { imageFieldsOf } from "../providers/image-fields.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type ChatProvider,
  ProviderFailure,
} from "../providers/interface.ts";
import { OpenAiCompletion, OpenAiStream } from "../providers/openai/chat/chat-answers.ts";
import { parseCompletion } from "../providers/openai/chat/raw-answers.ts";
import { asCompletion, asEvents, type PlannedEvent } from "./answer-shape.ts";
import { type AnswerPlan, sandboxModel, unknownModel } from "./drills.ts";
import { sandboxEmbed } from "./embeddings.ts";
import { SandboxImages } from "./image/image-provider.ts";
import { sandboxModerate } from "./moderation.ts";
import { type SandboxAnswer, sandboxPlan } from "./plan-answer.ts";
import { sandboxRerank } from "./rerank.ts";
import { sandboxSpeak } from "./speech/speech-provider.ts";
import { sandboxTranscribe } from "./speech/transcription-provider.ts";
import { partsOfTunedName, type SandboxTunedModels } from "./tuning/tuned-models.ts";
import { aborted, waitOn } from "./wait.ts";

/** The answer of `garbage`, as a body or as the first event of a stream. */
const GARBAGE = "<<< this is not JSON >>>";

export interface SandboxDependencies {
  readonly clock: Clock;
  /** Tuned models. Without it the sandbox has none. */
  readonly tunedModels?: SandboxTunedModels;
}

/**
 * Returns a built-in provider for trials and failure drills, which is not a language model. It answers the
 * same request in the same way, except for `created` and the id, and sends nothing anywhere. Model names can
 * omit `sandbox/`.
 */
export function createSandboxProvider(dependencies: SandboxDependencies): ChatProvider {
  const { clock, tunedModels } = dependencies;
  const images = new SandboxImages();
  return {
    fields: chatFieldsOf("sandbox"),
    embed: sandboxEmbed,
    rerank: sandboxRerank,
    moderate: sandboxModerate,
    imageFields: imageFieldsOf("sandbox"),
    image: (call) => images.image(call),
    speak: (call) => sandboxSpeak(call, clock),
    transcribe: sandboxTranscribe,
    async chat(call) {
      if (call.signal.aborted) throw aborted(call.signal);
      const name = call.model.replace(/^sandbox\//, "");
      const tuned = partsOfTunedName(name);
      const model = sandboxModel(tuned?.base ?? name);
      if (model.kind === "fails") throw model.failure();
      if (model.kind === "garbage") return garbage(call, clock);
      const learned = tuned && (await tunedModels?.find(tuned.tuningId));
      if (tuned !== undefined && learned === undefined) throw unknownModel(name);
      const { plan } = model;
      const options = { learned, manner: plan.manner };
      const planned = call.body.render(sandboxPlan, options, call.abortNotice ?? call.signal);
      return answer(
        call,
        plan,
        clock,
        planned instanceof Promise ? await orAborted(planned, call) : planned,
      );
    },
  };
}

async function orAborted(
  planned: Promise<SandboxAnswer>,
  { signal }: ChatCall,
): Promise<SandboxAnswer> {
  try {
    return await planned;
  } catch (error) {
    throw signal.aborted ? aborted(signal) : error;
  }
}

async function answer(
  call: ChatCall,
  plan: AnswerPlan,
  clock: Clock,
  planned: SandboxAnswer,
): Promise<ChatAnswer> {
  const { choices, usage, includeUsage, alternatives } = planned;
  const options = { alternatives };
  const head = {
    id: `chatcmpl-${call.requestId}`,
    created: Math.floor(clock.nowMs() / 1000),
    model: call.model,
  };
  if (call.stream) {
    const events = asEvents(head, choices, includeUsage ? usage : undefined, options);
    const stream = asEventStream(events, plan, clock, call.signal);
    return new OpenAiStream(stream.getReader(), clock);
  }
  const tokens = usage.completion_tokens;
  const breaks = plan.breaksAfterTokens < tokens;
  const waitMs = breaks ? plan.silenceMs : delayMs(plan, tokens);
  if (waitMs > 0) await waitOn(clock, waitMs, call.signal);
  if (breaks) throw broken(plan, "the answer was cut off");
  return new OpenAiCompletion(asCompletion(head, choices, usage, options), call.requestId);
}

/** Returns the time until the answer has that number of tokens, in milliseconds. */
function delayMs({ firstTokenDelayMs, tokenDelayMs }: AnswerPlan, tokens: number): number {
  return tokens === 0 ? 0 : firstTokenDelayMs + tokenDelayMs * (tokens - 1);
}

function broken({ silenceMs }: AnswerPlan, what: string): ProviderFailure {
  return new ProviderFailure(silenceMs > 0 ? "timeout" : "unavailable", what);
}

function garbage(call: ChatCall, clock: Clock): ChatAnswer {
  if (!call.stream) {
    const context = { nowMs: clock.nowMs(), apiKey: undefined };
    return new OpenAiCompletion(parseCompletion(GARBAGE, context), call.requestId);
  }
  const { body } = new Response(`data: ${GARBAGE}\n\n`);
  return new OpenAiStream(body!.getReader(), clock);
}

/**
 * Sends one server-sent event per pull, for backpressure, and `[DONE]` at the end. Fails with ProviderFailure
 * if it is aborted or its plan says that it breaks off.
 */
function asEventStream(
  events: Iterator<PlannedEvent>,
  plan: AnswerPlan,
  clock: Clock,
  signal: AbortSignal,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const cancelled = new AbortController();
  const stop = AbortSignal.any([signal, cancelled.signal]);
  let tokens = 0;

  /** Waits before a token. Rejects if the plan ends the stream here. */
  const beforeToken = async () => {
    const breaks = tokens >= plan.breaksAfterTokens;
    const pauseMs = tokens === 0 ? plan.firstTokenDelayMs : plan.tokenDelayMs;
    const waitMs = breaks ? plan.silenceMs : pauseMs;
    if (waitMs > 0) await waitOn(clock, waitMs, stop);
    if (breaks) throw broken(plan, "the stream was cut off");
    tokens++;
  };

  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (signal.aborted) return controller.error(aborted(signal));
      const next = events.next();
      if (next.done === true) {
        controller.enqueue(encoder.encode("data: [DONE]\n\n"));
        return controller.close();
      }
      try {
        if (next.value.isToken) await beforeToken();
      } catch (failure) {
        return controller.error(failure);
      }
      controller.enqueue(encoder.encode(`data: ${JSON.stringify(next.value.chunk)}\n\n`));
    },
    cancel() {
      cancelled.abort();
    },
  });
}
