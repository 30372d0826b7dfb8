import { GatewayError } from "../../../lib/errors.ts";
import {
  type AskedSpeech,
  type AskedTranscript,
  type AudioFields,
  type AudioTask,
  audioTaskOf,
  type LackedAudio,
} from "../../../providers/audio/fields.ts";
import type { FieldModel } from "../../../providers/chat-fields.ts";
import { planByLacks } from "./plan-by-lacks.ts";
import type { Candidate, RoutePlan } from "./plan-route.ts";

/** What a request for audio asks of its candidates, and where its parts stand in the request. */
export interface AskedAudio<Asked> {
  readonly asked: Asked;
  /** By the names that differ: `{ words: "timestamp_granularities" }`. */
  readonly params?: Readonly<Record<string, string>>;
  /** Of `provider.require_parameters`: hints count as what changes the answer. */
  readonly requiresAll: boolean;
}

/**
 * The plan of a request for speech without the candidates that lack what it asks for (contract: "Fields that a
 * model or provider does not have"). Throws 400 unsupported_model where the models do not speak, and 400
 * unsupported_parameter where no candidate is left.
 */
export function planSpeech(request: AskedAudio<AskedSpeech>, plan: RoutePlan): RoutePlan {
  return planTask("speech", request, plan, (fields, model) => fields.speech(request.asked, model));
}

/** The same for a transcript or a translation. */
export function planTranscript(request: AskedAudio<AskedTranscript>, plan: RoutePlan): RoutePlan {
  return planTask("transcription", request, plan, (fields, model) =>
    fields.transcript(request.asked, model),
  );
}

const VERBS: Readonly<Record<AudioTask, string>> = {
  speech: "speak",
  transcription: "transcribe",
};

function planTask(
  task: AudioTask,
  { params = {}, requiresAll }: AskedAudio<unknown>,
  plan: RoutePlan,
  lackedOf: (fields: AudioFields, model: FieldModel) => LackedAudio<string>,
): RoutePlan {
  const capable = plan.candidates.filter((one) => {
    const known = audioTaskOf(one.terms, fieldModelOf(one));
    return known === undefined || known === task;
  });
  if (capable.length === 0 && plan.candidates.length > 0) throw incapable(task, plan);
  const models = plan.models.filter((model) => capable.some((one) => one.model === model));
  return planByLacks({ ...plan, models, candidates: capable }, (candidate) => {
    const { audio } = candidate.provider;
    if (audio === undefined) return { leftOut: [], listed: [], barrier: undefined };
    const { answer, hints } = lackedOf(audio, fieldModelOf(candidate));
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
  const what = `${models} cannot ${VERBS[task]}, and cannot serve this endpoint.`;
  return new GatewayError("unsupported_model", what, { param: "model" });
}
