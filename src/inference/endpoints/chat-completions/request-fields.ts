import { type Barrier, type Lack, planByLacks } from "../../call/routing/plan-by-lacks.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import { asksNothing, type FieldModel, fieldKind } from "../../../providers/chat-fields.ts";
import { isAtWebAddress, kindOfPart, type PartKind } from "../../../providers/part-kinds.ts";
import { longCacheLifetime } from "./cost-bound.ts";
import { asFunctions, customToolsOf, takesCustomTools } from "./custom-tools.ts";
import { isGatewayField } from "./provider-body.ts";
import { type ChatRequest, type ContentPart, LONG_BODY } from "./request.ts";

/** Every provider has it, and no request is without. */
const MESSAGES = "messages";

/**
 * The plan of a request with regard to its fields and content parts (contract: "Fields that a model or
 * provider does not have"): candidates that lack a field which changes what an answer is, or do not take one
 * of the parts, are taken out, and for the others the fields that they lack are noted. With
 * `provider.require_parameters` every field counts as such. Throws 400 unsupported_parameter where no candidate
 * is left.
 *
 * @param hints fields that count as hints in this call, whatever they are to an answer
 */
export function planFields(
  request: ChatRequest,
  plan: RoutePlan,
  hints: ReadonlySet<string> = NO_HINTS,
): RoutePlan {
  const fields = fieldsOf(request);
  const strayOptions = strayStreamOptions(request);
  const parts = askedParts(request);
  const cacheLifetime = longCacheLifetime(request);
  const isPlain =
    fields.length + strayOptions.length === 0 && parts === NO_PARTS && cacheLifetime === undefined;
  if (plan.candidates.length === 0 || isPlain) return plan;

  const asked: AskedFields = {
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
  return planByLacks(plan, (candidate) => lackOf(candidate, asked));
}

/** The fields of a request that a provider has to have, and how they count. */
interface AskedFields {
  readonly request: ChatRequest;
  readonly fields: readonly string[];
  readonly strayOptions: readonly string[];
  readonly parts: AskedParts;
  /** Where a cache of more than five minutes is asked for, if it is. */
  readonly cacheLifetime: string | undefined;
  /** The field by which the request asks for images in the answer, if it does. */
  readonly forImages: string | undefined;
  /** The answer is to be spoken. */
  readonly forSound: boolean;
  readonly hasCustomTools: boolean;
  /** All candidates are of one type: an unknown field can only be meant for that one. */
  readonly areAlike: boolean;
  readonly requiresAll: boolean;
  readonly hints: ReadonlySet<string>;
}

/** The capability of chat models that answer with images. */
export const IMAGE_OUTPUT = "image_output";

function imageField({ modalities, image_config: config }: ChatRequest): string | undefined {
  if (modalities?.includes("image")) return "modalities";
  return asksNothing("image_config", config ?? {}) ? undefined : "image_config";
}

const NO_HINTS: ReadonlySet<string> = new Set();

const ofField = (field: string): Barrier => ({ name: field, param: field });

function lackOf(candidate: Candidate, asked: AskedFields): Lack {
  const { fields: ofProvider } = candidate.provider;
  const leftOut: string[] = [];
  const listed = [...asked.strayOptions];
  const model = {
    model: candidate.upstreamModel,
    modelId: candidate.model.canonicalId ?? candidate.model.id,
  };
  let barrier = strangePart(candidate, asked.parts, model) ?? unmeteredPart(candidate, asked.parts);
  if (asked.requiresAll && asked.strayOptions.length > 0) {
    barrier ??= ofField(asked.strayOptions[0]!);
  }
  if (asked.cacheLifetime !== undefined && !hasPriceOfLongCache(candidate)) {
    barrier ??= { name: "cache_control.ttl", param: asked.cacheLifetime };
  }
  if (asked.forSound && !isMeteredSpeaker(candidate)) barrier ??= ofField("modalities");
  if (asked.forImages !== undefined && !candidate.terms.capabilities.includes(IMAGE_OUTPUT)) {
    barrier ??= ofField(asked.forImages);
  }
  const getsCustom = asked.hasCustomTools && takesCustomTools(candidate);
  // Their calls are turned back in text, reasoning and calls alone.
  if (asked.hasCustomTools && !getsCustom && (asked.forSound || asked.forImages !== undefined)) {
    barrier ??= ofField("tools");
  }
  for (const field of ofProvider === undefined ? [] : asked.fields) {
    const value =
      asked.hasCustomTools && !getsCustom
        ? asFunctions(field, asked.request[field])
        : asked.request[field];
    const names = ofProvider!.missing(field, value, model, asked.areAlike, asked.request);
    if (names.length === 0) continue;
    // Of a field that it has in part, its adapter sends that part.
    if (names.includes(field)) leftOut.push(field);
    if (asksNothing(field, value)) continue;
    const isHint = asked.hints.has(field) || fieldKind(field) === "hint";
    if (asked.requiresAll || !isHint) barrier ??= ofField(names[0]!);
    listed.push(...names);
  }
  return { leftOut, listed, barrier };
}

/** Noted, in addition to its kind, for a part that the provider has to fetch. */
const WEB_ADDRESS = "web_address";

/** The first place of each kind of parts that the messages bring; text is none. */
export type AskedParts = { readonly [Kind in PartKind | typeof WEB_ADDRESS]?: string };

const NO_PARTS: AskedParts = Object.freeze({});

/** A part that the candidate's wire does not have, or that it would read with the operator's rights. */
function strangePart(
  { provider, ownKeyId }: Candidate,
  parts: AskedParts,
  model: FieldModel,
): Barrier | undefined {
  if (parts === NO_PARTS || provider.fields === undefined) return undefined;
  for (const kind in parts) {
    const takes =
      kind === WEB_ADDRESS
        ? provider.fields.lacksWebAddresses?.(model) !== true
        : provider.fields.takesPart(kind as PartKind, model) &&
          (kind !== "file_id" || ownKeyId !== undefined);
    if (!takes) return { name: kind, param: parts[kind as PartKind]! };
  }
  return undefined;
}

/**
 * A part that would be billed apart from text, and charged as text here, where no usage tells it apart. What
 * is neither an image nor sound may hold either.
 */
function unmeteredPart({ provider, terms }: Candidate, parts: AskedParts): Barrier | undefined {
  if (parts === NO_PARTS || provider.metersMedia === true) return undefined;
  const { audioInputTokenFemto, imageInputTokenFemto } = terms.prices;
  for (const kind in parts) {
    if (kind === WEB_ADDRESS) continue;
    const isPricedApart =
      (imageInputTokenFemto !== undefined && kind !== "audio") ||
      (audioInputTokenFemto !== undefined && kind !== "image");
    if (isPricedApart) return { name: `metered_${kind}`, param: parts[kind as PartKind]! };
  }
  return undefined;
}

/** Whether the model speaks, and its tokens of sound are metered and priced. */
function isMeteredSpeaker({ provider, terms }: Candidate): boolean {
  return provider.metersMedia === true && terms.prices.audioOutputTokenFemto !== undefined;
}

function hasPriceOfLongCache({ provider, terms }: Candidate): boolean {
  return (
    provider.metersCacheLifetimes === true && terms.prices.cacheWriteHourTokenFemto !== undefined
  );
}

export function askedParts(request: ChatRequest): AskedParts {
  const known = request[LONG_BODY]?.parts;
  if (known !== undefined) return Object.keys(known).length === 0 ? NO_PARTS : known;
  const parts: { -readonly [Kind in keyof AskedParts]: AskedParts[Kind] } = {};
  const { messages } = request;
  let hasAny = false;
  const note = (kind: keyof AskedParts, place: string) => {
    parts[kind] ??= place;
    hasAny = true;
  };
  for (let at = 0; at < messages.length; at++) {
    const { content, audio, images } = messages[at]!;
    // Of earlier answers.
    if (audio) note("audio", `messages.${at}.audio`);
    if (images) note("image", `messages.${at}.images`);
    if (!Array.isArray(content)) continue;
    for (const [position, part] of (content as ContentPart[]).entries()) {
      const kind = kindOfPart(part);
      if (kind === undefined) continue;
      const place = `messages.${at}.content.${position}`;
      note(kind, place);
      if (isAtWebAddress(part)) note(WEB_ADDRESS, place);
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

/** The gateway asks for the usage itself, and no stream of its is padded; nothing else is passed on. */
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
