import { isSelfHosted } from "../platform/config/provider-types.ts";
import type { FieldKind, FieldModel } from "./chat-fields.ts";
import { hasImageForms, type ImageForm, imageFormOf } from "./image-models.ts";
import type { ImageCall } from "./media.ts";

/** What an image request asks for, as far as models differ in it. */
export interface AskedImages {
  readonly task: ImageCall["task"];
  /** How many images it brings. */
  readonly inputs: number;
  readonly hasMask: boolean;
  /** The other fields that it states, by their names in the request; none of them is null. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** What a model lacks of a request, by the names of its fields; `model` where it has no such task. */
export interface LackedImageFields {
  /** The field without which the request is another one; the model cannot serve it. */
  readonly barrier: string | undefined;
  /** Fields that are not to be in the ImageCall. */
  readonly leftOut: readonly string[];
  /** Those of them that asked for something: they are reported to the caller. */
  readonly listed: readonly string[];
}

/** The fields of image requests that the models of one provider have. */
export interface ImageFields {
  /** The provider's type. */
  readonly type: string;
  /** @param requiresAll as `provider.require_parameters` says: hints count as fields that change the answer */
  lackOf(asked: AskedImages, model: FieldModel, requiresAll: boolean): LackedImageFields;
  /** The longest prompt that the model takes; undefined where its provider states none. */
  maxPromptCharacters(model: FieldModel): number | undefined;
  /** Whether the model's own provider answers in base64 alone, so that its clients read nothing else. */
  answersInBase64(model: FieldModel): boolean;
}

interface ImageField {
  readonly kind: FieldKind;
  /** True for a value that asks for what happens without the field. */
  readonly asksNothing?: (value: unknown) => boolean;
}

const is =
  (...neutral: readonly unknown[]) =>
  (value: unknown) =>
    neutral.includes(value);

const FIELDS: Readonly<Record<string, ImageField>> = {
  n: { kind: "answer", asksNothing: is(1) },
  size: { kind: "answer", asksNothing: is("auto") },
  aspect_ratio: { kind: "answer", asksNothing: is("auto") },
  quality: { kind: "answer", asksNothing: is("auto", "standard") },
  // The usual style of the models that have some.
  style: { kind: "answer", asksNothing: is("vivid") },
  negative_prompt: { kind: "answer", asksNothing: is("") },
  background: { kind: "answer", asksNothing: is("auto", "opaque") },
  output_format: { kind: "answer" },
  stream: { kind: "answer", asksNothing: is(false) },
  partial_images: { kind: "hint", asksNothing: is(0) },
  seed: { kind: "hint" },
  output_compression: { kind: "hint", asksNothing: is(100) },
  moderation: { kind: "hint", asksNothing: is("auto") },
  input_fidelity: { kind: "hint", asksNothing: is("low") },
  user: { kind: "hint" },
};

/**
 * Names by which some servers take how many images to make, how large, or with how much effort: what the hold
 * was not made for. The value is the field to use.
 */
export const IMAGE_SYNONYMS: Readonly<Record<string, string>> = {
  num_images: "n",
  num_outputs: "n",
  number_of_images: "n",
  numberOfImages: "n",
  sampleCount: "n",
  samples: "n",
  batch_size: "n",
  num_return_sequences: "n",
  best_of: "n",
  width: "size",
  height: "size",
  image_size: "size",
  imageSize: "size",
  resolution: "size",
  megapixels: "size",
  steps: "quality",
  num_inference_steps: "quality",
};

/**
 * Fields that are one provider's own, none of which changes what an image costs, and the types that have them.
 * Servers of the operator's own get every field.
 */
const OWN_FIELDS: Readonly<Record<string, readonly string[]>> = {
  cfg_scale: ["stability"],
  disable_safety_checker: ["together"],
  enable_safety_checker: ["fal"],
  guidance: ["bfl"],
  guidance_scale: ["fal", "together"],
  prompt_upsampling: ["bfl"],
  raw: ["bfl"],
  safety_settings: ["google", "vertex"],
  safety_tolerance: ["bfl", "fal"],
  style_preset: ["stability"],
};

/** The fields of a provider type's models, by the table of image-models.ts. */
export function imageFieldsOf(type: string): ImageFields {
  const isOwnServer = isSelfHosted(type);
  return {
    type,
    lackOf: (asked, model, requiresAll) =>
      isOwnServer ? NOTHING : lackOf(imageFormOf(type, model), type, asked, requiresAll),
    maxPromptCharacters: (model) =>
      isOwnServer ? undefined : imageFormOf(type, model)?.maxPromptCharacters,
    answersInBase64: (model) => !isOwnServer && imageFormOf(type, model)?.answersInBase64 === true,
  };
}

/** Whether a provider of the type is known to make images, or may do so because the operator runs it. */
export function makesImages(type: string): boolean {
  return isSelfHosted(type) || hasImageForms(type);
}

const NOTHING: LackedImageFields = { barrier: undefined, leftOut: [], listed: [] };

function lackOf(
  form: ImageForm | undefined,
  type: string,
  asked: AskedImages,
  requiresAll: boolean,
): LackedImageFields {
  const { task, inputs, hasMask, fields } = asked;
  if (form === undefined || !form.tasks.includes(task)) {
    return { ...NOTHING, barrier: "model" };
  }
  let barrier = inputs > (form.maxInputs ?? 1) ? "image" : undefined;
  if (hasMask && form.hasMask !== true) barrier ??= "mask";
  const leftOut: string[] = [];
  const listed: string[] = [];
  for (const field in fields) {
    const value = fields[field];
    if (has(form, type, field, value, task)) continue;
    leftOut.push(field);
    if (FIELDS[field]?.asksNothing?.(value) === true) continue;
    if (requiresAll || FIELDS[field]?.kind === "answer") barrier ??= field;
    listed.push(field);
  }
  return { barrier, leftOut, listed };
}

function has(
  form: ImageForm,
  type: string,
  field: string,
  value: unknown,
  task: ImageCall["task"],
): boolean {
  if (!Object.hasOwn(FIELDS, field)) {
    return Object.hasOwn(OWN_FIELDS, field) && OWN_FIELDS[field]!.includes(type);
  }
  return Object.hasOwn(form.takes, field) && form.takes[field]!(value, task);
}
