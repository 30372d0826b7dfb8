import { dataOfUrl } from "../../../lib/data-url.ts";
import { kindOfImage } from "../../../lib/image-header.ts";
import type { Usage } from "../../../lib/usage.ts";
import { ProviderFailure } from "../../../providers/interface.ts";
import type { GeneratedImages, ImageData, ImageFacts } from "../../../providers/media.ts";
import type { ProviderCall } from "../../call/call.ts";
import type { NewMedia } from "../../media-links/media-links.ts";
import { bytesOfBase64 } from "./base64-pieces.ts";

/** Maximum total bytes of all images of an answer. */
export const MAX_IMAGES_BYTES = 48 * 1024 * 1024;
const MAX_FACT_CHARACTERS = 64;
const MAX_REVISED_CHARACTERS = 32_768;

/** An image with the content type that its bytes have. */
export interface DecodedImage extends NewMedia {
  readonly bytes: Buffer;
  readonly revisedPrompt: string | undefined;
}

export interface DecodedImages {
  readonly images: readonly DecodedImage[];
  /** Facts that the provider states or that the bytes show. */
  readonly facts: ImageFacts;
  readonly reported: Usage | undefined;
}

/** Downloads an image that the provider stores for a while. Rejects with ProviderFailure. */
export type FetchImage = (
  url: string,
  options: { readonly maxBytes: number; readonly signal: AbortSignal },
) => Promise<Buffer>;

/**
 * Returns the images of an answer in any form, at most as many as requested. Rejects with ProviderFailure if
 * there are none, or if one is not an image.
 */
export async function imagesOf(
  answer: GeneratedImages,
  count: number,
  fetchImage: FetchImage,
  call: ProviderCall,
): Promise<DecodedImages> {
  const generated = answer.images.slice(0, count);
  if (generated.length === 0) throw broken("an answer without an image");
  const images: DecodedImage[] = [];
  let measured: string | undefined;
  let leftBytes = MAX_IMAGES_BYTES;
  for (const { data, revisedPrompt } of generated) {
    const bytes = await bytesOf(data, leftBytes, fetchImage, call);
    const kind = kindOfImage(bytes);
    if (kind === undefined) throw broken("bytes that are not an image");
    leftBytes -= bytes.length;
    const { contentType, width, height } = kind;
    images.push({
      bytes,
      contentType,
      revisedPrompt: revisedPrompt?.slice(0, MAX_REVISED_CHARACTERS),
    });
    if (width !== undefined) measured ??= `${width}x${height}`;
  }
  return { images, facts: factsOf(answer, measured), reported: answer.usage };
}

async function bytesOf(
  data: ImageData,
  maxBytes: number,
  fetchImage: FetchImage,
  call: ProviderCall,
): Promise<Buffer> {
  if ("url" in data) {
    const inline = dataOfUrl(data.url);
    if (inline === undefined) return fetchImage(data.url, { maxBytes, signal: call.signal });
    return decoded(inline.base64, maxBytes);
  }
  return decoded(data.base64, maxBytes);
}

async function decoded(base64: string, maxBytes: number): Promise<Buffer> {
  const bytes = await bytesOfBase64(base64, maxBytes);
  if (bytes === undefined) throw broken("an image that is not base64 or is too large");
  return bytes;
}

const SIZE = /^\d{1,5}x\d{1,5}$/;

/** Returns the facts that are short strings. If the provider states no valid size, the size is the measured one. */
export function factsOf(facts: ImageFacts, measured: string | undefined): ImageFacts {
  const size = word(facts.size);
  return {
    size: size !== undefined && SIZE.test(size) ? size : (measured ?? size),
    quality: word(facts.quality),
    background: word(facts.background),
    outputFormat: word(facts.outputFormat),
  };
}

function word(value: string | undefined): string | undefined {
  const isWord = typeof value === "string" && value.length <= MAX_FACT_CHARACTERS;
  return isWord ? value : undefined;
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider sent ${what}`);
}
