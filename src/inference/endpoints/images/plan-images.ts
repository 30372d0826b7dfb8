import { GatewayError } from "../../../lib/errors.ts";
import type { FieldModel } from "../../../providers/chat-fields.ts";
import type { RequestedImages } from "../../../providers/image-fields.ts";
import { type CandidateSupport, filterBySupport } from "../../call/routing/filter-by-support.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import type { AcceptedImages } from "./request.ts";

/**
 * Plans a request for images. Removes candidates that do not support its fields (contract: "Fields that a
 * model or provider does not have") or a prompt of its length. Throws 400 if no candidate is left.
 */
export function planImages(request: AcceptedImages, plan: RoutePlan): RoutePlan {
  const able = withTask(request, withRoomForPrompt(request, plan));
  const requested = requestedImages(request);
  const requiresAll = request.fields.provider?.require_parameters === true;
  return filterBySupport(able, (candidate) => unsupportedBy(candidate, requested, requiresAll));
}

/**
 * Returns true if the candidate streams images. For other candidates, the gateway sends a complete answer as
 * a stream.
 */
export function streamsImages({ fields, task }: AcceptedImages, candidate: Candidate): boolean {
  if (fields.stream !== true) return false;
  const requested = { task, inputs: 0, hasMask: false, fields: { stream: true } };
  return unsupportedBy(candidate, requested, false).barrier === undefined;
}

function withRoomForPrompt({ prompt }: AcceptedImages, plan: RoutePlan): RoutePlan {
  const limits = plan.candidates.map((candidate) => ({ candidate, most: promptLimit(candidate) }));
  const characters = charactersOf(prompt);
  const roomy = limits.filter(({ most }) => characters <= most);
  if (roomy.length === limits.length) return plan;
  if (roomy.length > 0) return filtered(plan, (candidate) => characters <= promptLimit(candidate));
  const most = Math.max(...limits.map((limit) => limit.most));
  throw new GatewayError(
    "invalid_body",
    `Request body field "prompt": must have at most ${most} characters for this model`,
    { param: "prompt" },
  );
}

/** Returns the number of code points. A surrogate pair counts as one character. */
function charactersOf(text: string): number {
  let characters = 0;
  for (const _ of text) characters++;
  return characters;
}

function promptLimit(candidate: Candidate): number {
  const { imageFields } = candidate.provider;
  return imageFields?.maxPromptCharacters(fieldModelOf(candidate)) ?? Number.POSITIVE_INFINITY;
}

/**
 * Returns true if the answer must contain base64 in addition to links. This is the case if the request does
 * not state the form and clients of the model expect base64.
 */
export function addsBase64({ fields }: AcceptedImages, candidate: Candidate): boolean {
  const { imageFields } = candidate.provider;
  const isOpen = fields.response_format === undefined || fields.response_format === null;
  return isOpen && imageFields?.answersInBase64(fieldModelOf(candidate)) === true;
}

/**
 * Removes candidates that do not support the task. Models support one or several tasks, so no field of the
 * request is at fault.
 */
function withTask({ task }: AcceptedImages, plan: RoutePlan): RoutePlan {
  const bare = { task, inputs: 0, hasMask: false, fields: {} };
  const isAble = (candidate: Candidate) =>
    unsupportedBy(candidate, bare, false).barrier?.name !== "model";
  const able = filtered(plan, isAble);
  if (able.candidates.length > 0 || plan.candidates.length === 0) return able;
  const models = plan.models.map(({ id }) => id).join(", ");
  throw new GatewayError(
    "unsupported_model",
    `${models} cannot ${task} images, and cannot serve this endpoint.`,
    { param: "model" },
  );
}

function filtered(plan: RoutePlan, matches: (candidate: Candidate) => boolean): RoutePlan {
  const candidates = plan.candidates.filter(matches);
  if (candidates.length === plan.candidates.length) return plan;
  const models = plan.models.filter((model) =>
    candidates.some((candidate) => candidate.model === model),
  );
  return { ...plan, models: candidates.length === 0 ? plan.models : models, candidates };
}

function requestedImages({ task, images, mask, requested }: AcceptedImages): RequestedImages {
  return { task, inputs: images.length, hasMask: mask !== undefined, fields: requested };
}

function unsupportedBy(
  candidate: Candidate,
  requested: RequestedImages,
  requiresAll: boolean,
): CandidateSupport {
  const { imageFields } = candidate.provider;
  if (imageFields === undefined) return { leftOut: [], listed: [], barrier: undefined };
  const unsupported = imageFields.unsupported(requested, fieldModelOf(candidate), requiresAll);
  const { barrier, leftOut, listed } = unsupported;
  const at = barrier === undefined ? undefined : { name: barrier, param: barrier };
  return { leftOut, listed, barrier: at };
}

function fieldModelOf({ upstreamModel, model }: Candidate): FieldModel {
  return { model: upstreamModel, modelId: model.canonicalId ?? model.id };
}
