import { GatewayError } from "../../../lib/errors.ts";
import type { FieldModel } from "../../../providers/chat-fields.ts";
import type { RequestedImages } from "../../../providers/image-fields.ts";
import { type Lack, planByLacks } from "../../call/routing/plan-by-lacks.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import type { AcceptedImages } from "./request.ts";

/**
 * The plan of a request for images without the candidates that lack what it asks for (contract: "Fields that a
 * model or provider does not have"), or take no prompt of its length. Throws 400 where no candidate is left.
 */
export function planImages(request: AcceptedImages, plan: RoutePlan): RoutePlan {
  const able = withTask(request, withRoomForPrompt(request, plan));
  const asked = askedOf(request);
  const requiresAll = request.fields.provider?.require_parameters === true;
  return planByLacks(able, (candidate) => lackOf(candidate, asked, requiresAll));
}

/** Whether the candidate streams; for one that does not, a whole answer is sent as a stream. */
export function streamsImages({ fields, task }: AcceptedImages, candidate: Candidate): boolean {
  if (fields.stream !== true) return false;
  const asked = { task, inputs: 0, hasMask: false, fields: { stream: true } };
  return lackOf(candidate, asked, false).barrier === undefined;
}

function withRoomForPrompt({ prompt }: AcceptedImages, plan: RoutePlan): RoutePlan {
  const limits = plan.candidates.map((candidate) => ({ candidate, most: promptLimit(candidate) }));
  const characters = charactersOf(prompt);
  const roomy = limits.filter(({ most }) => characters <= most);
  if (roomy.length === limits.length) return plan;
  if (roomy.length > 0) return keeping(plan, (one) => characters <= promptLimit(one));
  const most = Math.max(...limits.map((limit) => limit.most));
  throw new GatewayError(
    "invalid_body",
    `Request body field "prompt": must have at most ${most} characters for this model`,
    { param: "prompt" },
  );
}

/** Code points: one that takes two units of UTF-16 is one character. */
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
 * Whether the answer is to have its images in base64 besides links: the request leaves the form open, and clients of
 * the model read base64.
 */
export function addsBase64({ fields }: AcceptedImages, candidate: Candidate): boolean {
  const { imageFields } = candidate.provider;
  const isOpen = fields.response_format === undefined || fields.response_format === null;
  return isOpen && imageFields?.answersInBase64(fieldModelOf(candidate)) === true;
}

/** Models have one task or several; of one that lacks it no field is at fault. */
function withTask({ task }: AcceptedImages, plan: RoutePlan): RoutePlan {
  const bare = { task, inputs: 0, hasMask: false, fields: {} };
  const isAble = (one: Candidate) => lackOf(one, bare, false).barrier?.name !== "model";
  const able = keeping(plan, isAble);
  if (able.candidates.length > 0 || plan.candidates.length === 0) return able;
  const models = plan.models.map(({ id }) => id).join(", ");
  throw new GatewayError(
    "unsupported_model",
    `${models} cannot ${task} images, and cannot serve this endpoint.`,
    { param: "model" },
  );
}

function keeping(plan: RoutePlan, isKept: (candidate: Candidate) => boolean): RoutePlan {
  const candidates = plan.candidates.filter(isKept);
  if (candidates.length === plan.candidates.length) return plan;
  const models = plan.models.filter((model) => candidates.some((one) => one.model === model));
  return { ...plan, models: candidates.length === 0 ? plan.models : models, candidates };
}

function askedOf({ task, images, mask, asked }: AcceptedImages): RequestedImages {
  return { task, inputs: images.length, hasMask: mask !== undefined, fields: asked };
}

function lackOf(candidate: Candidate, asked: RequestedImages, requiresAll: boolean): Lack {
  const { imageFields } = candidate.provider;
  if (imageFields === undefined) return { leftOut: [], listed: [], barrier: undefined };
  const lacked = imageFields.lackOf(asked, fieldModelOf(candidate), requiresAll);
  const { barrier, leftOut, listed } = lacked;
  const at = barrier === undefined ? undefined : { name: barrier, param: barrier };
  return { leftOut, listed, barrier: at };
}

function fieldModelOf({ upstreamModel, model }: Candidate): FieldModel {
  return { model: upstreamModel, modelId: model.canonicalId ?? model.id };
}
