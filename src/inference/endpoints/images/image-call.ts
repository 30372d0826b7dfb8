import type { GeneratedImages, ImageCall, ImageStream } from "../../../providers/media.ts";
import { type AdmittedCall, type ProviderCall, providerRequest } from "../../call/call.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { streamsImages } from "./plan-images.ts";
import type { AcceptedImages } from "./request.ts";
import { CALL_FIELDS } from "./schema.ts";

/**
 * Requests the images from the candidate, without the fields that it does not support. Rejects with
 * ProviderFailure.
 */
export function callForImages(
  call: ProviderCall,
  candidate: Candidate,
  { request, plan }: AdmittedCall<AcceptedImages>,
): Promise<GeneratedImages | ImageStream> {
  const leftOut = plan.unsupported?.get(candidate)?.leftOut ?? [];
  const supported = Object.fromEntries(
    Object.entries(request.requested).filter(([name]) => !leftOut.includes(name)),
  );
  const further = Object.entries(supported).filter(([name]) => !CALL_FIELDS.has(name));
  const stream = streamsImages(request, candidate);
  return candidate.provider.image!(
    providerRequest(call, {
      task: request.task,
      prompt: request.prompt,
      count: request.count,
      ...callFields(supported),
      images: request.images,
      mask: request.mask,
      stream,
      ...(!stream && { partialImages: undefined }),
      fields: Object.fromEntries(further),
    }),
  );
}

/** Returns the fields of a call. The request's schema has checked their types. */
function callFields(supported: Readonly<Record<string, unknown>>): Partial<ImageCall> {
  return {
    size: supported.size as string | undefined,
    aspectRatio: supported.aspect_ratio as string | undefined,
    quality: supported.quality as string | undefined,
    style: supported.style as string | undefined,
    negativePrompt: supported.negative_prompt as string | undefined,
    seed: supported.seed as number | undefined,
    background: supported.background as string | undefined,
    outputFormat: supported.output_format as string | undefined,
    outputCompression: supported.output_compression as number | undefined,
    moderation: supported.moderation as string | undefined,
    inputFidelity: supported.input_fidelity as string | undefined,
    partialImages: supported.partial_images as number | undefined,
  };
}
