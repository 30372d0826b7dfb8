import { type FieldModel, fieldKind, isDefault } from "../../../providers/chat-fields.ts";
import { isAtWebAddress, kindOfPart, type PartKind } from "../../../providers/part-kinds.ts";
import {
  type Barrier,
  type CandidateSupport,
  filterBySupport,
} from "../../call/routing/filter-by-support.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import { longCacheLifetime } from "./cost-bound.ts";
import { asFunctions, customToolsOf, takesCustomTools } from "./custom-tools.ts";
import { isGatewayField } from "./provider-body.ts";
import { type ChatRequest, type ContentPart, OFFLOADED_BODY } from "./request.ts";

/** Every provider supports this field, and every request has it. */
const MESSAGES = "messages";

/**
 * Plans a request by its fields and content parts (contract: "Fields that a model or provider does not
 * have"). Removes candidates that do not support one of the parts, or a field that changes the answer. For
 * the others, records the fields that they do not support. With `provider.require_parameters`, every field
 * counts as required. Throws 400 unsupported_parameter if no candidate is left.
 *
 * @param hints fields that count as optional in this call, whatever their usual kind
 */
export function planFields(
  request: ChatRequest,
  plan: RoutePlan,
  hints: ReadonlySet<string> = NO_HINTS,
): RoutePlan {
  const fields = fieldsOf(request);
  const strayOptions = strayStreamOptions(request);
  const parts = requestedParts(request);
  const cacheLifetime = longCacheLifetime(request);
  const isPlain =
    fields.length + strayOptions.length === 0 && parts === NO_PARTS && cacheLifetime === undefined;
  if (plan.candidates.length === 0 || isPlain) return plan;

  const requested: RequestedFields = {
    request,
    fields,
    strayOptions,
    parts,
    cacheLifetime,
    forImages: imageField(request),
    forSound: request.modalities?.includes("audio") === true,
    hasCustomTools: customToolsOf(request).length > 0,
    areAlike: areOfOneType(plan.candidates),
    requiresAll: request.provider?.require_parameters === true,
    hints,
  };
  return filterBySupport(plan, (candidate) => unsupportedFields(candidate, requested));
}

/** The fields of a request that a provider must support, and how they count. */
interface RequestedFields {
  readonly request: ChatRequest;
  readonly fields: readonly string[];
  readonly strayOptions: readonly string[];
  readonly parts: RequestedParts;
  /** The parameter that requests a cache lifetime of more than five minutes, if the request has one. */
  readonly cacheLifetime: string | undefined;
  /** The field that requests images in the answer, if the request has one. */
  readonly forImages: string | undefined;
  /** True if the request wants audio output. */
  readonly forSound: boolean;
  readonly hasCustomTools: boolean;
  /**
   * True if all candidates have the same provider type, so that an unknown field can only be meant for that
   * type.
   */
  readonly areAlike: boolean;
  readonly requiresAll: boolean;
  readonly hints: ReadonlySet<string>;
}

/** The capability of chat models that answer with images. */
export const IMAGE_OUTPUT = "image_output";

function imageField({ modalities, image_config: config }: ChatRequest): string | undefined {
  if (modalities?.includes("image")) return "modalities";
  return isDefault("image_config", config ?? {}) ? undefined : "image_config";
}

const NO_HINTS: ReadonlySet<string> = new Set();

const ofField = (field: string): Barrier => ({ name: field, param: field });

function unsupportedFields(candidate: Candidate, requested: RequestedFields): CandidateSupport {
  const { fields: ofProvider } = candidate.provider;
  const leftOut: string[] = [];
  const listed = [...requested.strayOptions];
  const model = {
    model: candidate.upstreamModel,
    modelId: candidate.model.canonicalId ?? candidate.model.id,
  };
  let barrier =
    unsupportedPart(candidate, requested.parts, model) ?? unmeteredPart(candidate, requested.parts);
  if (requested.requiresAll && requested.strayOptions.length > 0) {
    barrier ??= ofField(requested.strayOptions[0]!);
  }
  if (requested.cacheLifetime !== undefined && !hasPriceOfLongCache(candidate)) {
    barrier ??= { name: "cache_control.ttl", param: requested.cacheLifetime };
  }
  if (requested.forSound && !metersAudioOutput(candidate)) barrier ??= ofField("modalities");
  if (requested.forImages !== undefined && !candidate.terms.capabilities.includes(IMAGE_OUTPUT)) {
    barrier ??= ofField(requested.forImages);
  }
  const getsCustom = requested.hasCustomTools && takesCustomTools(candidate);
  // Calls can be turned back into custom tool calls only in answers of text, reasoning and calls.
  if (
    requested.hasCustomTools &&
    !getsCustom &&
    (requested.forSound || requested.forImages !== undefined)
  ) {
    barrier ??= ofField("tools");
  }
  for (const field of ofProvider === undefined ? [] : requested.fields) {
    const value =
      requested.hasCustomTools && !getsCustom
        ? asFunctions(field, requested.request[field])
        : requested.request[field];
    const names = ofProvider!.unsupported(
      field,
      value,
      model,
      requested.areAlike,
      requested.request,
    );
    if (names.length === 0) continue;
    // If the provider supports a part of the field, the adapter sends that part.
    if (names.includes(field)) leftOut.push(field);
    if (isDefault(field, value)) continue;
    const isHint = requested.hints.has(field) || fieldKind(field) === "hint";
    if (requested.requiresAll || !isHint) barrier ??= ofField(names[0]!);
    listed.push(...names);
  }
  return { leftOut, listed, barrier };
}

/** Recorded in addition to its kind, for a part that the provider has to download. */
const WEB_ADDRESS = "web_address";

/** The first parameter path for each kind of part in the messages. Text is not a kind. */
export type RequestedParts = { readonly [Kind in PartKind | typeof WEB_ADDRESS]?: string };

const NO_PARTS: RequestedParts = Object.freeze({});

/**
 * Returns a part that the candidate does not support, or that its provider would read with the operator's
 * credentials.
 */
function unsupportedPart(
  { provider, byokKeyId }: Candidate,
  parts: RequestedParts,
  model: FieldModel,
): Barrier | undefined {
  if (parts === NO_PARTS || provider.fields === undefined) return undefined;
  for (const kind in parts) {
    const takes =
      kind === WEB_ADDRESS
        ? provider.fields.rejectsWebUrls?.(model) !== true
        : provider.fields.takesPart(kind as PartKind, model) &&
          (kind !== "file_id" || byokKeyId !== undefined);
    if (!takes) return { name: kind, param: parts[kind as PartKind]! };
  }
  return undefined;
}

/**
 * Returns a part that has a separate price, if the provider's usage does not report such parts separately.
 * The part would be charged as text. A part that is neither image nor audio can contain either.
 */
function unmeteredPart({ provider, terms }: Candidate, parts: RequestedParts): Barrier | undefined {
  if (parts === NO_PARTS || provider.metersMedia === true) return undefined;
  const { audioInputTokenFemto, imageInputTokenFemto } = terms.prices;
  for (const kind in parts) {
    if (kind === WEB_ADDRESS) continue;
    const hasSeparatePrice =
      (imageInputTokenFemto !== undefined && kind !== "audio") ||
      (audioInputTokenFemto !== undefined && kind !== "image");
    if (hasSeparatePrice) return { name: `metered_${kind}`, param: parts[kind as PartKind]! };
  }
  return undefined;
}

/** Returns true if the provider meters audio output and the model has a price for it. */
function metersAudioOutput({ provider, terms }: Candidate): boolean {
  return provider.metersMedia === true && terms.prices.audioOutputTokenFemto !== undefined;
}

function hasPriceOfLongCache({ provider, terms }: Candidate): boolean {
  return (
    provider.metersCacheLifetimes === true && terms.prices.cacheWriteHourTokenFemto !== undefined
  );
}

export function requestedParts(request: ChatRequest): RequestedParts {
  const recorded = request[OFFLOADED_BODY]?.parts;
  if (recorded !== undefined) return Object.keys(recorded).length === 0 ? NO_PARTS : recorded;
  const parts: { -readonly [Kind in keyof RequestedParts]: RequestedParts[Kind] } = {};
  const { messages } = request;
  let hasAny = false;
  const record = (kind: keyof RequestedParts, path: string) => {
    parts[kind] ??= path;
    hasAny = true;
  };
  for (let at = 0; at < messages.length; at++) {
    const { content, audio, images } = messages[at]!;
    // Audio and images of earlier answers.
    if (audio) record("audio", `messages.${at}.audio`);
    if (images) record("image", `messages.${at}.images`);
    if (!Array.isArray(content)) continue;
    for (const [position, part] of (content as ContentPart[]).entries()) {
      const kind = kindOfPart(part);
      if (kind === undefined) continue;
      const path = `messages.${at}.content.${position}`;
      record(kind, path);
      if (isAtWebAddress(part)) record(WEB_ADDRESS, path);
    }
  }
  return hasAny ? parts : NO_PARTS;
}

function fieldsOf(request: ChatRequest): string[] {
  const fields: string[] = [];
  for (const field in request) {
    if (field === MESSAGES || isGatewayField(field)) continue;
    if (request[field] !== null && request[field] !== undefined) fields.push(field);
  }
  return fields;
}

/**
 * Returns the stream options that a provider would have to support. The gateway requests usage itself and
 * does not pad streams, so those two options are excluded.
 */
function strayStreamOptions({ stream_options: options }: ChatRequest): string[] {
  return Object.entries(options ?? {})
    .filter(([name, value]) => {
      if (name === "include_usage" || value === null) return false;
      return !(name === "include_obfuscation" && value === false);
    })
    .map(([name]) => `stream_options.${name}`);
}

function areOfOneType(candidates: readonly Candidate[]): boolean {
  const type = candidates[0]!.provider.fields?.type;
  return candidates.every(({ provider }) => provider.fields?.type === type);
}
