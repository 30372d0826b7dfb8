import type { Candidate, LackedFields, RoutePlan } from "../../calls/routing/plan-route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { asksNothing, fieldKind } from "../../providers/chat-fields.ts";
import { longCacheLifetime } from "./cost-bound.ts";
import { isGatewayField } from "./provider-body.ts";
import { type ChatRequest, type ContentPart, LONG_BODY } from "./request.ts";

/** Every provider has it, and no request is without. */
const MESSAGES = "messages";

/**
 * The plan of a request with regard to its fields (contract: "Fields that a model or provider does not
 * have"): candidates that lack a field which changes what an answer is are taken out, and for the others
 * the fields that they lack are noted. With `provider.require_parameters` every field counts as such.
 * Throws 400 unsupported_parameter where no candidate is left.
 */
export function planFields(request: ChatRequest, plan: RoutePlan): RoutePlan {
  const fields = fieldsOf(request);
  const strayOptions = strayStreamOptions(request);
  const media = plan.candidates.some(pricesMediaApart) ? askedMedia(request) : NO_MEDIA;
  const cacheLifetime = longCacheLifetime(request);
  const isPlain =
    fields.length + strayOptions.length === 0 && media === NO_MEDIA && cacheLifetime === undefined;
  if (plan.candidates.length === 0 || isPlain) return plan;

  const asked: AskedFields = {
    request,
    fields,
    strayOptions,
    media,
    cacheLifetime,
    areAlike: areOfOneType(plan.candidates),
    requiresAll: request.provider?.require_parameters === true,
  };
  const candidates: Candidate[] = [];
  const lacked = new Map<Candidate, LackedFields>();
  const barriers: string[] = [];
  const skipped = [...(plan.skipped ?? [])];
  for (const candidate of plan.candidates) {
    const lack = lackOf(candidate, asked);
    if (lack.barrier !== undefined) {
      barriers.push(lack.barrier);
      skipped.push({ placeId: candidate.placeId, reason: `lacks_${lack.barrier}` });
      continue;
    }
    candidates.push(candidate);
    if (lack.leftOut.length > 0 || lack.listed.length > 0) lacked.set(candidate, lack);
  }
  if (candidates.length === 0) throw unsupported(barriers, plan);
  if (barriers.length === 0 && lacked.size === 0) return plan;
  const models = plan.models.filter((model) => candidates.some((one) => one.model === model));
  return { ...plan, models, candidates, skipped, ...(lacked.size > 0 && { lacked }) };
}

/** The fields of a request that a provider has to have, and how they count. */
interface AskedFields {
  readonly request: ChatRequest;
  readonly fields: readonly string[];
  readonly strayOptions: readonly string[];
  readonly media: AskedMedia;
  /** Where a cache of more than five minutes is asked for, if it is. */
  readonly cacheLifetime: string | undefined;
  /** All candidates are of one type: an unknown field can only be meant for that one. */
  readonly areAlike: boolean;
  readonly requiresAll: boolean;
}

interface Lack extends LackedFields {
  /** The first name without which the candidate cannot serve the request. */
  readonly barrier: string | undefined;
}

function lackOf(candidate: Candidate, asked: AskedFields): Lack {
  const { fields: ofProvider } = candidate.provider;
  const leftOut: string[] = [];
  const listed = [...asked.strayOptions];
  let barrier = asked.requiresAll ? asked.strayOptions[0] : undefined;
  barrier ??= unmeteredMedium(candidate, asked.media);
  if (!hasPriceOfLongCache(candidate)) barrier ??= asked.cacheLifetime;
  const model = {
    model: candidate.upstreamModel,
    modelId: candidate.model.canonicalId ?? candidate.model.id,
  };
  for (const field of ofProvider === undefined ? [] : asked.fields) {
    const value = asked.request[field];
    const names = ofProvider!.missing(field, value, model, asked.areAlike, asked.request);
    if (names.length === 0) continue;
    // Of a field that it has in part, its adapter sends that part.
    if (names.includes(field)) leftOut.push(field);
    if (asksNothing(field, value)) continue;
    if (asked.requiresAll || fieldKind(field) === "answer") barrier ??= names[0];
    listed.push(...names);
  }
  return { leftOut, listed, barrier };
}

/** Where a prompt brings what is no text; a part of a kind that is not known may be either. */
export interface AskedMedia {
  readonly sound?: string;
  readonly image?: string;
}

const NO_MEDIA: AskedMedia = Object.freeze({});
const IMAGE_PARTS = new Set(["image", "image_url", "input_image"]);

function pricesMediaApart({ terms }: Candidate): boolean {
  const { audioInputTokenFemto, imageInputTokenFemto } = terms.prices;
  return audioInputTokenFemto !== undefined || imageInputTokenFemto !== undefined;
}

/** What would be billed apart from text, and charged as text here, where no usage tells it apart. */
function unmeteredMedium({ provider, terms }: Candidate, media: AskedMedia): string | undefined {
  if (provider.metersMedia === true) return undefined;
  const { audioInputTokenFemto, imageInputTokenFemto } = terms.prices;
  const sound = audioInputTokenFemto === undefined ? undefined : media.sound;
  return sound ?? (imageInputTokenFemto === undefined ? undefined : media.image);
}

function hasPriceOfLongCache({ provider, terms }: Candidate): boolean {
  return (
    provider.metersCacheLifetimes === true && terms.prices.cacheWriteHourTokenFemto !== undefined
  );
}

export function askedMedia(request: ChatRequest): AskedMedia {
  const known = request[LONG_BODY]?.media;
  if (known !== undefined) return known;
  let sound: string | undefined;
  let image: string | undefined;
  for (const [at, message] of request.messages.entries()) {
    if (message.audio) sound ??= `messages.${at}.audio`;
    if (message.images) image ??= `messages.${at}.images`;
    if (!Array.isArray(message.content)) continue;
    for (const [part, { type }] of (message.content as ContentPart[]).entries()) {
      if (type === "text") continue;
      const place = `messages.${at}.content.${part}`;
      image ??= place;
      if (!IMAGE_PARTS.has(type)) sound ??= place;
    }
  }
  if (sound === undefined && image === undefined) return NO_MEDIA;
  return { ...(sound !== undefined && { sound }), ...(image !== undefined && { image }) };
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

const MAX_SHOWN_CHARACTERS = 100;

/** Names the field that most candidates lack. */
function unsupported(barriers: readonly string[], plan: RoutePlan): GatewayError {
  const count = (name: string) => barriers.filter((one) => one === name).length;
  const param = barriers.reduce((most, name) => (count(name) > count(most) ? name : most));
  const models = plan.models.map(({ id }) => id).join(", ");
  const everywhere = count(param) === barriers.length;
  const shown = JSON.stringify(param.slice(0, MAX_SHOWN_CHARACTERS));
  const what = everywhere
    ? `${shown} is not supported by ${models} at any of its providers.`
    : `No provider of ${models} supports all fields of the request; most lack ${shown}.`;
  return new GatewayError("unsupported_parameter", what, { param });
}
