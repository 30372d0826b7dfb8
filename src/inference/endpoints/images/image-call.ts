import type { GeneratedImages, ImageCall, ImageStream } from "../../../providers/media.ts";
import { type AdmittedCall, type ProviderCall, providerRequest } from "../../call/call.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { streamsImages } from "./plan-images.ts";
import type { AcceptedImages } from "./request.ts";
import { CALL_FIELDS } from "./schema.ts";

/** Asks the candidate for the images, without the fields that it lacks. Rejects with ProviderFailure. */
export function callForImages(
  call: ProviderCall,
  candidate: Candidate,
  { request, plan }: AdmittedCall<AcceptedImages>,
): Promise<GeneratedImages | ImageStream> {
  const leftOut = plan.lacked?.get(candidate)?.leftOut ?? [];
  const asked = Object.fromEntries(
    Object.entries(request.asked).filter(([name]) => !leftOut.includes(name)),
  );
  const further = Object.entries(asked).filter(([name]) => !CALL_FIELDS.has(name));
  const stream = streamsImages(request, candidate);
  return candidate.provider.image!(
    providerRequest(call, {
      task: request.task,
      prompt: request.prompt,
      count: request.count,
      ...callFields(asked),
      images: request.images,
      mask: request.mask,
      stream,
      ...(!stream && { partialImages: undefined }),
      fields: Object.fromEntries(further),
    }),
  );
}

/** The request's schema has checked them. */
function callFields(asked: Readonly<Record<string, unknown>>): Partial<ImageCall> {
  return {
    size: asked.size as string | undefined,
    aspectRatio: asked.aspect_ratio as string | undefined,
    quality: asked.quality as string | undefined,
    style: asked.style as string | undefined,
    negativePrompt: asked.negative_prompt as string | undefined,
    seed: asked.seed as number | undefined,
    background: asked.background as string | undefined,
    outputFormat: asked.output_format as string | undefined,
    outputCompression: asked.output_compression as number | undefined,
    moderation: asked.moderation as string | undefined,
    inputFidelity: asked.input_fidelity as string | undefined,
    partialImages: asked.partial_images as number | undefined,
  };
}
