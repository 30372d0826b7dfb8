import { isSelfHosted } from "../platform/config/provider-types.ts";
import type { FieldKind, FieldModel } from "./chat-fields.ts";
import { hasImageForms, type ImageForm, imageFormOf } from "./image-models.ts";
import type { ImageCall } from "./media.ts";

/** The parts of an image request in which models differ. */
export interface RequestedImages {
  readonly task: ImageCall["task"];
  /** Number of input images. */
  readonly inputs: number;
  readonly hasMask: boolean;
  /** The other fields in the request, by their names in the request. No value is null. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** The fields of an image request that a model does not support. `model` means a task that it does not support. */
export interface UnsupportedImageFields {
  /** The field that prevents the model from serving the request. */
  readonly barrier: string | undefined;
  /** Fields to leave out of the ImageCall. */
  readonly leftOut: readonly string[];
  /** The fields of `leftOut` that differ from the default. They are reported to the caller. */
  readonly listed: readonly string[];
}

/** The image fields that the models of one provider support. */
export interface ImageFields {
  /** The provider's type. */
  readonly type: string;
  /**
   * Returns the fields that the model does not support.
   *
   * @param requiresAll `provider.require_parameters` is set: hints count like fields that change the answer
   */
  unsupported(
    request: RequestedImages,
    model: FieldModel,
    requiresAll: boolean,
  ): UnsupportedImageFields;
  /** Returns the longest prompt that the model accepts, in characters. Undefined if the provider states none. */
  maxPromptCharacters(model: FieldModel): number | undefined;
  /** Returns true if the model's provider only answers in base64, so that its clients read nothing else. */
  answersInBase64(model: FieldModel): boolean;
}

interface ImageField {
  readonly kind: FieldKind;
  /** Returns true if the value means the same as leaving the field out. */
  readonly isDefault?: (value: unknown) => boolean;
}

const is =
  (...neutral: readonly unknown[]) =>
  (value: unknown) =>
    neutral.includes(value);

const FIELDS: Readonly<Record<string, ImageField>> = {
  n: { kind: "answer", isDefault: is(1) },
  size: { kind: "answer", isDefault: is("auto") },
  aspect_ratio: { kind: "answer", isDefault: is("auto") },
  quality: { kind: "answer", isDefault: is("auto", "standard") },
  // The default style of the models that have styles.
  style: { kind: "answer", isDefault: is("vivid") },
  negative_prompt: { kind: "answer", isDefault: is("") },
  background: { kind: "answer", isDefault: is("auto", "opaque") },
  output_format: { kind: "answer" },
  stream: { kind: "answer", isDefault: is(false) },
  partial_images: { kind: "hint", isDefault: is(0) },
  seed: { kind: "hint" },
  output_compression: { kind: "hint", isDefault: is(100) },
  moderation: { kind: "hint", isDefault: is("auto") },
  input_fidelity: { kind: "hint", isDefault: is("low") },
  user: { kind: "hint" },
};

/**
 * Names that some servers use for the number of images, their size or the effort. The hold would not cover such fields.
 * The value is the field to use.
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
 * Fields of single providers, and the types that support them. None changes the price of an image. Servers that the
 * operator runs get every field.
 */
const PROVIDER_FIELDS: Readonly<Record<string, readonly string[]>> = {
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

/** Returns the fields of a provider type's models, from the table in image-models.ts. */
export function imageFieldsOf(type: string): ImageFields {
  const isServerSelfHosted = isSelfHosted(type);
  return {
    type,
    unsupported: (request, model, requiresAll) =>
      isServerSelfHosted
        ? NOTHING
        : unsupportedIn(imageFormOf(type, model), type, request, requiresAll),
    maxPromptCharacters: (model) =>
      isServerSelfHosted ? undefined : imageFormOf(type, model)?.maxPromptCharacters,
    answersInBase64: (model) =>
      !isServerSelfHosted && imageFormOf(type, model)?.answersInBase64 === true,
  };
}

/** Returns true if providers of the type make images, or if the operator runs them, so that they could. */
export function makesImages(type: string): boolean {
  return isSelfHosted(type) || hasImageForms(type);
}

const NOTHING: UnsupportedImageFields = { barrier: undefined, leftOut: [], listed: [] };

function unsupportedIn(
  form: ImageForm | undefined,
  type: string,
  request: RequestedImages,
  requiresAll: boolean,
): UnsupportedImageFields {
  const { task, inputs, hasMask, fields } = request;
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
    if (FIELDS[field]?.isDefault?.(value) === true) continue;
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
    return Object.hasOwn(PROVIDER_FIELDS, field) && PROVIDER_FIELDS[field]!.includes(type);
  }
  return Object.hasOwn(form.takes, field) && form.takes[field]!(value, task);
}
