import type { FieldModel } from "./chat-fields.ts";
import type { ImageCall } from "./media.ts";

type Task = ImageCall["task"];
type Takes = (value: unknown, task: Task) => boolean;

/** The tasks, limits and fields that an image model supports. */
export interface ImageForm {
  readonly tasks: readonly Task[];
  /** Maximum number of input images in one edit. Absent: 1. */
  readonly maxInputs?: number;
  readonly hasMask?: true;
  readonly maxPromptCharacters?: number;
  /** The provider returns no links, so clients of the model read base64. */
  readonly answersInBase64?: true;
  /** The supported fields of the request, each with a check of its values. */
  readonly takes: Readonly<Record<string, Takes>>;
}

const any: Takes = () => true;
const oneOf =
  (...values: readonly unknown[]): Takes =>
  (value) =>
    values.includes(value);
const upTo =
  (most: number): Takes =>
  (value) =>
    (value as number) <= most;
const whenEditing: Takes = (_value, task) => task === "edit";
const whenGenerating: Takes = (_value, task) => task === "generate";
const formats = oneOf("png", "jpeg", "webp");
const seed32: Takes = (value) => (value as number) >= 0 && (value as number) < 2 ** 32;

/** Returns a check for `aspect_ratio`, and one for sizes of exactly such a ratio. */
function ratios(...list: readonly string[]): Pick<ImageForm["takes"], "aspect_ratio" | "size"> {
  return {
    aspect_ratio: oneOf(...list),
    size: (value) => list.includes(ratioOfSize(value as string) ?? ""),
  };
}

const SIZE = /^(\d{1,5})x(\d{1,5})$/;

/** Returns `{ width: 1536, height: 1024 }` for `1536x1024`, and undefined for any other text. */
export function dimensionsOf(
  size: string | undefined,
): { readonly width: number; readonly height: number } | undefined {
  const [, width, height] = (SIZE.exec(size ?? "") ?? []).map(Number);
  return width && height ? { width, height } : undefined;
}

/** Returns `3:2` for `1536x1024`, and undefined for any text that is not a size. */
export function ratioOfSize(size: string | undefined): string | undefined {
  const sides = dimensionsOf(size);
  if (sides === undefined) return undefined;
  let [divisor, rest] = [sides.width, sides.height];
  while (rest !== 0) [divisor, rest] = [rest, divisor % rest];
  return `${sides.width / divisor}:${sides.height / divisor}`;
}

/** Returns a check for sizes whose sides are multiples of a number and within bounds. */
function sides(step: number, least: number, most: number): Takes {
  const fits = (side: number) => side >= least && side <= most && side % step === 0;
  return (value) => {
    const dimensions = dimensionsOf(value as string);
    return dimensions !== undefined && fits(dimensions.width) && fits(dimensions.height);
  };
}

/** OpenAI's models, see https://platform.openai.com/docs/api-reference/images. */
const DALL_E_2: ImageForm = {
  tasks: ["generate", "edit", "vary"],
  hasMask: true,
  maxPromptCharacters: 1_000,
  takes: { n: upTo(10), size: oneOf("256x256", "512x512", "1024x1024"), user: any },
};
const DALL_E_3: ImageForm = {
  tasks: ["generate"],
  maxPromptCharacters: 4_000,
  takes: {
    n: oneOf(1),
    size: oneOf("1024x1024", "1792x1024", "1024x1792"),
    quality: oneOf("standard", "hd"),
    style: oneOf("vivid", "natural"),
    user: any,
  },
};
/** The aspect ratios that GPT Image has a size for. */
export const GPT_IMAGE_SIZES: Readonly<Record<string, string>> = {
  "1:1": "1024x1024",
  "3:2": "1536x1024",
  "2:3": "1024x1536",
};
const GPT_IMAGE: ImageForm = {
  tasks: ["generate", "edit"],
  maxInputs: 16,
  hasMask: true,
  maxPromptCharacters: 32_000,
  answersInBase64: true,
  takes: {
    n: upTo(10),
    // Newer models accept more sizes, and reject others themselves.
    size: any,
    aspect_ratio: oneOf(...Object.keys(GPT_IMAGE_SIZES)),
    quality: oneOf("low", "medium", "high", "auto"),
    background: oneOf("transparent", "opaque", "auto"),
    output_format: formats,
    output_compression: any,
    moderation: whenGenerating,
    input_fidelity: whenEditing,
    stream: any,
    partial_images: upTo(3),
    user: any,
  },
};
const GPT_IMAGE_MINI: ImageForm = {
  ...GPT_IMAGE,
  takes: { ...GPT_IMAGE.takes, input_fidelity: () => false },
};

function openAiForm(name: string): ImageForm {
  if (name.includes("dall-e-2")) return DALL_E_2;
  if (name.includes("dall-e-3")) return DALL_E_3;
  return name.includes("mini") ? GPT_IMAGE_MINI : GPT_IMAGE;
}

/** https://docs.x.ai/docs/guides/image-generations. `resolution` raises the price and is not passed on. */
const GROK: ImageForm = {
  tasks: ["generate", "edit"],
  maxInputs: 3,
  takes: {
    n: upTo(10),
    ...ratios("1:1", "16:9", "9:16", "4:3", "3:4", "3:2", "2:3", "2:1", "1:2"),
    user: any,
  },
};

/** https://docs.together.ai/reference/post-images-generations */
const TOGETHER: ImageForm = {
  tasks: ["generate", "edit"],
  takes: {
    n: upTo(4),
    size: sides(8, 64, 2_048),
    negative_prompt: any,
    seed: any,
    output_format: oneOf("png", "jpeg"),
  },
};

/** https://deepinfra.com/docs/inference_api/openai-images: OpenAI's form without most of its fields. */
const DEEPINFRA: ImageForm = {
  tasks: ["generate"],
  takes: { n: upTo(4), size: sides(8, 128, 2_048), user: any },
};

const GEMINI_RATIOS = ["1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"];
/** https://ai.google.dev/gemini-api/docs/image-generation */
const GEMINI_2_5_IMAGE: ImageForm = {
  tasks: ["generate", "edit"],
  maxInputs: 3,
  takes: { n: oneOf(1), ...ratios(...GEMINI_RATIOS), seed: upTo(2 ** 31 - 1) },
};
const GEMINI_IMAGE: ImageForm = { ...GEMINI_2_5_IMAGE, maxInputs: 14 };
/**
 * https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/imagen-api. The Gemini API no longer has
 * Imagen.
 */
const IMAGEN: ImageForm = {
  tasks: ["generate"],
  takes: {
    n: upTo(4),
    ...ratios("1:1", "3:4", "4:3", "9:16", "16:9"),
    output_format: oneOf("png", "jpeg"),
    output_compression: any,
  },
};

function geminiForm(name: string): ImageForm {
  return name.includes("gemini-2") ? GEMINI_2_5_IMAGE : GEMINI_IMAGE;
}

function vertexForm(name: string): ImageForm {
  return name.includes("imagen") ? IMAGEN : geminiForm(name);
}

const STABILITY_RATIOS = ["16:9", "1:1", "21:9", "2:3", "3:2", "4:5", "5:4", "9:16", "9:21"];
/** https://platform.stability.ai/docs/api-reference#tag/Generate */
const STABLE_IMAGE: ImageForm = {
  tasks: ["generate"],
  maxPromptCharacters: 10_000,
  takes: {
    n: oneOf(1),
    ...ratios(...STABILITY_RATIOS),
    negative_prompt: any,
    seed: (value) => seed32(value, "generate") && value !== 2 ** 32 - 1,
    output_format: formats,
  },
};
const STABLE_DIFFUSION_3: ImageForm = {
  ...STABLE_IMAGE,
  takes: { ...STABLE_IMAGE.takes, output_format: oneOf("png", "jpeg") },
};
/** "This parameter does not work with sd3-large-turbo": the distilled models have no guidance. */
const STABLE_DIFFUSION_3_TURBO: ImageForm = {
  ...STABLE_DIFFUSION_3,
  takes: { ...STABLE_DIFFUSION_3.takes, negative_prompt: () => false },
};

function stabilityForm(name: string): ImageForm {
  if (name.startsWith("stable-image")) return STABLE_IMAGE;
  return name.includes("turbo") ? STABLE_DIFFUSION_3_TURBO : STABLE_DIFFUSION_3;
}

const BFL_RATIOS = ["21:9", "16:9", "3:2", "4:3", "1:1", "3:4", "2:3", "9:16", "9:21"];
const ofBfl = { n: oneOf(1), seed: any, output_format: oneOf("png", "jpeg") };
/** https://docs.bfl.ai. Models differ in how they state the size, and in whether they edit. */
const FLUX_SIZED: ImageForm = {
  tasks: ["generate"],
  takes: { ...ofBfl, size: sides(32, 256, 1_440) },
};
const FLUX_ULTRA: ImageForm = {
  tasks: ["generate"],
  takes: { ...ofBfl, ...ratios(...BFL_RATIOS) },
};
const FLUX_KONTEXT: ImageForm = {
  tasks: ["generate", "edit"],
  takes: { ...ofBfl, ...ratios(...BFL_RATIOS) },
};
const FLUX_2: ImageForm = {
  tasks: ["generate", "edit"],
  maxInputs: 8,
  takes: { ...ofBfl, size: sides(16, 64, 2_048) },
};

function fluxForm(name: string): ImageForm {
  if (name.includes("kontext")) return FLUX_KONTEXT;
  if (name.includes("ultra")) return FLUX_ULTRA;
  return name.includes("flux-2") ? FLUX_2 : FLUX_SIZED;
}

/** https://fal.ai/models, one page for each model. Most models are of one of two kinds. */
const FAL_SIZED: ImageForm = {
  tasks: ["generate"],
  takes: {
    n: upTo(4),
    size: sides(8, 64, 4_096),
    seed: any,
    output_format: oneOf("png", "jpeg"),
  },
};
const FAL_BY_RATIO: ImageForm = {
  tasks: ["generate"],
  takes: { n: upTo(4), ...ratios(...BFL_RATIOS), seed: any, output_format: oneOf("png", "jpeg") },
};
const FAL_EDIT: ImageForm = { ...FAL_BY_RATIO, tasks: ["edit"], maxInputs: 4 };

/** Returns true if a model at fal takes a ratio instead of a size. */
function isByRatioAtFal(name: string): boolean {
  return /ultra|kontext|nano-banana|gemini|imagen/.test(name);
}

function falForm(name: string): ImageForm {
  if (name.endsWith("/edit") || name.includes("kontext")) return FAL_EDIT;
  return isByRatioAtFal(name) ? FAL_BY_RATIO : FAL_SIZED;
}

/** The sandbox accepts every task. The specification (8) states the limit of its prompts. */
const SANDBOX: ImageForm = {
  tasks: ["generate", "edit", "vary"],
  maxInputs: 16,
  hasMask: true,
  maxPromptCharacters: 4_000,
  takes: {
    n: upTo(10),
    size: any,
    aspect_ratio: any,
    quality: any,
    style: any,
    negative_prompt: any,
    seed: any,
    background: any,
    output_format: formats,
    output_compression: any,
    moderation: any,
    input_fidelity: any,
    stream: any,
    partial_images: any,
    user: any,
  },
};

const FORMS: Readonly<Record<string, (name: string) => ImageForm>> = {
  openai: openAiForm,
  azure: openAiForm,
  xai: () => GROK,
  together: () => TOGETHER,
  deepinfra: () => DEEPINFRA,
  google: geminiForm,
  vertex: vertexForm,
  stability: stabilityForm,
  bfl: fluxForm,
  fal: falForm,
  sandbox: () => SANDBOX,
};

/** Returns true if the type is known to have image models. */
export function hasImageForms(type: string): boolean {
  return Object.hasOwn(FORMS, type);
}

/** Returns what a model supports at a provider type. Undefined for a type that makes no images. */
export function imageFormOf(type: string, { model, modelId }: FieldModel): ImageForm | undefined {
  if (!hasImageForms(type)) return undefined;
  // The operator chooses the names of deployments.
  const name = type === "azure" ? modelId : model;
  return FORMS[type]!(name.toLowerCase());
}
