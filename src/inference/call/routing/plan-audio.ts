import { GatewayError } from "../../../lib/errors.ts";
import {
  type AudioFields,
  type AudioTask,
  audioTaskOf,
  type RequestedSpeech,
  type RequestedTranscript,
  type UnsupportedAudio,
} from "../../../providers/audio/fields.ts";
import type { FieldModel } from "../../../providers/chat-fields.ts";
import { filterBySupport } from "./filter-by-support.ts";
import type { Candidate, RoutePlan } from "./plan-route.ts";

/** The requested parts of an audio request, and the parameters that they come from. */
export interface AudioRequest<Asked> {
  readonly parts: Asked;
  /** Parameters whose name differs from the part: `{ words: "timestamp_granularities" }`. */
  readonly params?: Readonly<Record<string, string>>;
  /** The value of `provider.require_parameters`. If true, optional parts count as required. */
  readonly requiresAll: boolean;
}

/**
 * Returns the plan of a speech request without the candidates that do not support it (contract: "Fields that
 * a model or provider does not have"). Throws 400 unsupported_model if the models cannot generate speech, and
 * 400 unsupported_parameter if no candidate is left.
 */
export function planSpeech(request: AudioRequest<RequestedSpeech>, plan: RoutePlan): RoutePlan {
  return planTask("speech", request, plan, (fields, model) => fields.speech(request.parts, model));
}

/** Returns the plan of a transcription or translation, like `planSpeech`. */
export function planTranscript(
  request: AudioRequest<RequestedTranscript>,
  plan: RoutePlan,
): RoutePlan {
  return planTask("transcription", request, plan, (fields, model) =>
    fields.transcript(request.parts, model),
  );
}

const VERBS: Readonly<Record<AudioTask, string>> = {
  speech: "speak",
  transcription: "transcribe",
};

function planTask(
  task: AudioTask,
  { params = {}, requiresAll }: AudioRequest<unknown>,
  plan: RoutePlan,
  unsupportedOf: (fields: AudioFields, model: FieldModel) => UnsupportedAudio<string>,
): RoutePlan {
  const capable = plan.candidates.filter((candidate) => {
    const candidateTask = audioTaskOf(candidate.terms, fieldModelOf(candidate));
    return candidateTask === undefined || candidateTask === task;
  });
  if (capable.length === 0 && plan.candidates.length > 0) throw incapable(task, plan);
  const models = plan.models.filter((model) =>
    capable.some((candidate) => candidate.model === model),
  );
  return filterBySupport({ ...plan, models, candidates: capable }, (candidate) => {
    const { audio } = candidate.provider;
    if (audio === undefined) return { leftOut: [], listed: [], barrier: undefined };
    const { answer, hints } = unsupportedOf(audio, fieldModelOf(candidate));
    const name = answer[0] ?? (requiresAll ? hints[0] : undefined);
    const barrier = name === undefined ? undefined : { name, param: params[name] ?? name };
    return { leftOut: hints, listed: hints, barrier };
  });
}

function fieldModelOf({ upstreamModel, model }: Candidate): FieldModel {
  return { model: upstreamModel, modelId: model.canonicalId ?? model.id };
}

function incapable(task: AudioTask, plan: RoutePlan): GatewayError {
  const models = plan.models.map(({ id }) => id).join(", ");
  const message = `${models} cannot ${VERBS[task]}, and cannot serve this endpoint.`;
  return new GatewayError("unsupported_model", message, { param: "model" });
}
