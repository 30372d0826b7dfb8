import { dimensionsOf, GPT_IMAGE_SIZES, ratioOfSize } from "../image-models.ts";
import type { GeneratedImages, ImageCall, ImageEvent, ImageStream, MediaFile } from "../media.ts";
import { MAX_IMAGES_BYTES } from "../transport/bounded-body.ts";
import type { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { FileInJson, jsonWithFiles } from "../transport/json-with-files.ts";
import { type FormPart, multipartForm } from "../transport/multipart-upload.ts";
import { isEventStream } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { ImageEventDecoder, openAiImageList } from "./image-answers.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Differences between servers with OpenAI's image API. Their supported fields are in ../image-models.ts. */
interface OpenAiImageVariant {
  /**
   * Returns the `response_format` that requests base64 instead of a URL. Undefined if the model only returns base64 and
   * rejects the field.
   */
  readonly responseFormat: (name: string) => string | undefined;
  /** Returns the size, or the ratio of its sides, in the server's fields. */
  readonly shape: (call: ImageCall) => Fields;
  /** Returns the fields of an edit whose body is JSON. Absent: edits are sent as a form. */
  readonly editInJson?: (files: readonly FileInJson[]) => Fields;
  /** Path of edits that are sent as JSON. */
  readonly editPath?: string;
}

/** These models answer "Unknown parameter: 'response_format'." */
const GPT_IMAGE = /gpt-image|chatgpt-image/;

const PLAIN: OpenAiImageVariant = {
  responseFormat: (name) => (GPT_IMAGE.test(name) ? undefined : "b64_json"),
  shape: ({ size, aspectRatio }) => ({ size, aspect_ratio: aspectRatio }),
};
const OPENAI: OpenAiImageVariant = {
  // It is unknown what newer models accept. They return base64 or a URL.
  responseFormat: (name) => (name.includes("dall-e") ? "b64_json" : undefined),
  shape: ({ size, aspectRatio = "" }) => ({ size: size ?? GPT_IMAGE_SIZES[aspectRatio] }),
};

const VARIANTS: ReadonlyMap<string, OpenAiImageVariant> = new Map<string, OpenAiImageVariant>([
  ["openai", OPENAI],
  ["azure", OPENAI],
  // https://docs.x.ai/docs/guides/image-generations: edits are JSON with data URLs.
  [
    "xai",
    {
      ...PLAIN,
      shape: ({ size, aspectRatio }) => ({ aspect_ratio: aspectRatio ?? ratioOfSize(size) }),
      editInJson(files) {
        const images = files.map((url) => ({ type: "image_url", url }));
        return images.length === 1 ? { image: images[0] } : { images };
      },
    },
  ],
  // https://docs.together.ai/reference/post-images-generations: edits use the same endpoint as generations.
  [
    "together",
    {
      responseFormat: () => "base64",
      shape: ({ size }) => ({ ...dimensionsOf(size) }),
      editInJson: ([file]) => ({ image_url: file }),
      editPath: "/images/generations",
    },
  ],
]);

const PATHS: Readonly<Record<ImageCall["task"], string>> = {
  generate: "/images/generations",
  edit: "/images/edits",
  vary: "/images/variations",
};

export interface OpenAiImagesOptions {
  readonly wire: HttpJsonProvider;
  readonly type: string;
  readonly baseUrl: string;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Returns a function that requests images with OpenAI's API (https://platform.openai.com/docs/api-reference/images). It
 * rejects with ProviderFailure.
 */
export function openAiImages({ wire, type, baseUrl, headers }: OpenAiImagesOptions) {
  return async (call: ImageCall): Promise<GeneratedImages | ImageStream> => {
    const { path, body, bodyBytes, contentType } = imageRequest(call, type);
    const request = {
      method: "POST",
      url: endpointUrl(baseUrl, path),
      headers: contentType === undefined ? headers : { ...headers, "content-type": contentType },
      body,
      bodyBytes,
    };
    const response = await wire.send(request, call);
    if (call.stream && isEventStream(response.headers.get("content-type"))) {
      const decoder = new ImageEventDecoder(call.count, wire.failureContext);
      const reader = wire.reader<ImageEvent>(response, decoder);
      return { kind: "image-events", reader: () => reader };
    }
    const { failureContext } = wire;
    return wire.read(response, openAiImageList, { failureContext }, call, MAX_IMAGES_BYTES);
  };
}

interface ImageRequest {
  readonly path: string;
  readonly body: string | ReadableStream<Uint8Array>;
  readonly bodyBytes?: number | undefined;
  /** Content type of a form. Absent for JSON. */
  readonly contentType?: string;
}

function imageRequest(call: ImageCall, type: string): ImageRequest {
  const variant = VARIANTS.get(type) ?? PLAIN;
  const fields = requestFields(call, variant);
  const { task, images } = call;
  if (task === "generate") return { path: PATHS.generate, body: JSON.stringify(fields) };
  if (task === "edit" && variant.editInJson !== undefined) {
    const files = images.map((file) => FileInJson.asDataUrl(file));
    const body = jsonWithFiles({ ...fields, ...variant.editInJson(files) });
    return { path: variant.editPath ?? PATHS.edit, body };
  }
  return { path: PATHS[task], ...multipartForm(formParts(fields, call)) };
}

/** Returns the fields of a request. Undefined members are not sent. */
function requestFields(call: ImageCall, variant: OpenAiImageVariant): Fields {
  const { model, modelId = model, task, count, stream } = call;
  return {
    ...call.fields,
    model,
    prompt: task === "vary" ? undefined : call.prompt,
    n: count === 1 ? undefined : count,
    ...variant.shape(call),
    quality: call.quality,
    style: call.style,
    negative_prompt: call.negativePrompt,
    seed: call.seed,
    background: call.background,
    output_format: call.outputFormat,
    output_compression: call.outputCompression,
    moderation: call.moderation,
    input_fidelity: call.inputFidelity,
    response_format: variant.responseFormat(`${model} ${modelId}`),
    stream: stream || undefined,
    partial_images: stream ? call.partialImages : undefined,
  };
}

function formParts(fields: Fields, { images, mask }: ImageCall): FormPart[] {
  const parts: FormPart[] = [];
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined || value === null) continue;
    parts.push({ name, value: typeof value === "object" ? JSON.stringify(value) : String(value) });
  }
  const name = images.length === 1 ? "image" : "image[]";
  const file = (part: string, media: MediaFile): FormPart => ({ name: part, file: media });
  parts.push(...images.map((image) => file(name, image)));
  if (mask !== undefined) parts.push(file("mask", mask));
  return parts;
}
