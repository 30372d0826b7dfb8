import type { Clock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import { imageFieldsOf } from "../image-fields.ts";
import { ratioOfSize } from "../image-models.ts";
import { type Provider, ProviderFailure, type ProviderSettings } from "../interface.ts";
import type { GeneratedImages, ImageCall } from "../media.ts";
import { failureInside, failureOfStatus } from "../openai/failure-mapping.ts";
import { AnswerRead, type AnswerThread } from "../thread-work.ts";
import { MAX_IMAGES_BYTES, parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried } from "../transport/json-headers.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import type { FormPart } from "../transport/multipart-upload.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";

interface StabilityDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  readonly workThread?: AnswerThread;
}

/**
 * Returns a provider of Stability AI's Stable Image
 * (https://platform.stability.ai/docs/api-reference#tag/Generate). Requests are forms, and answers are JSON
 * with the image in base64. Throws if its key cannot be sent.
 */
export function createStabilityProvider(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: StabilityDependencies,
): Provider {
  const { id, type, baseUrl, apiKey } = settings;
  if (apiKey !== undefined) assertKeyIsCarried(id, apiKey);
  const headers = {
    accept: "application/json",
    "accept-encoding": "identity",
    ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
  };
  const wire = new HttpJsonProvider({
    settings,
    headers,
    clock,
    httpClient,
    workThread,
    failureOfStatus,
  });
  return {
    async image(call) {
      const url = endpointUrl(baseUrl, `/stable-image/generate/${pathOf(call.model)}`);
      const response = await wire.postForm(url, formParts(call), call);
      const { failureContext } = wire;
      const options = { failureContext, outputFormat: call.outputFormat ?? "png" };
      return wire.read(response, stableImage, options, call, MAX_IMAGES_BYTES);
    },
    imageFields: imageFieldsOf(type),
    checkKey: () =>
      checkKeyByModelList(httpClient, `${new URL(baseUrl).origin}/v1/user/balance`, headers),
  };
}

const STABLE_IMAGE = "stable-image-";

/**
 * Returns the URL path of a model. `core` and `ultra` have separate paths, and Stable Diffusion 3 models
 * share one.
 */
function pathOf(model: string): string {
  return model.startsWith(STABLE_IMAGE)
    ? encodeURIComponent(model.slice(STABLE_IMAGE.length))
    : "sd3";
}

function formParts(call: ImageCall): FormPart[] {
  const { model, size, aspectRatio = ratioOfSize(size) } = call;
  const fields = {
    ...call.fields,
    prompt: call.prompt,
    model: model.startsWith(STABLE_IMAGE) ? undefined : model,
    aspect_ratio: aspectRatio,
    negative_prompt: call.negativePrompt,
    seed: call.seed,
    output_format: call.outputFormat,
  };
  return Object.entries(fields).flatMap(([name, value]) =>
    value === undefined || value === null ? [] : [{ name, value: String(value) }],
  );
}

interface StableImageOptions {
  readonly failureContext: FailureContext;
  readonly outputFormat: string;
}

/** Reads an answer. Throws ProviderFailure if it has no image. */
export const stableImage = new AnswerRead(
  import.meta.url,
  (text, { failureContext, outputFormat }: StableImageOptions): GeneratedImages => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    const { image, finish_reason: reason } = answer;
    // The answer contains a blurred image.
    if (reason === "CONTENT_FILTERED") {
      throw new ProviderFailure("content_policy", "The provider's filter blurred the image.");
    }
    if (typeof image !== "string" || image === "") throw brokenAnswer("no image");
    return {
      kind: "images",
      images: [{ data: { base64: image } }],
      usage: undefined,
      outputFormat,
    };
  },
);
