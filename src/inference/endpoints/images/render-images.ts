import { latin1OfText } from "../../../lib/event-splitter.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { ImageFacts } from "../../../providers/media.ts";
import type { AnswerFacts } from "../../call/endpoint.ts";
import { base64Length, writeBase64 } from "./base64-pieces.ts";
import type { DecodedImage } from "./decoded-images.ts";
import type { AcceptedImages } from "./request.ts";

/** Bytes before and after the list of images. More than the rest of an answer needs. */
const ROOM_BYTES = 2_048;

/** The list of images in an answer's JSON, with free space before and after it. */
export interface RenderedImages {
  readonly buffer: Buffer;
  readonly start: number;
  readonly end: number;
}

/**
 * Renders the list of images.
 *
 * @param links in the order of the images; undefined to render base64 instead
 * @param addsBase64 true to render base64 in addition to links
 */
export async function renderImages(
  images: readonly DecodedImage[],
  links: readonly string[] | undefined,
  { prompt }: AcceptedImages,
  addsBase64: boolean,
): Promise<RenderedImages> {
  const parts = images.map(({ bytes, revisedPrompt = prompt }, at) => {
    const revised =
      revisedPrompt === "" ? "" : `,"revised_prompt":${JSON.stringify(revisedPrompt)}`;
    const begin = at === 0 ? "[{" : ",{";
    const end = at === images.length - 1 ? "}]" : "}";
    const link = links === undefined ? "" : `"url":${JSON.stringify(links[at])}`;
    if (links !== undefined && !addsBase64) {
      return { head: begin + link, bytes: NONE, tail: revised + end };
    }
    const comma = link === "" ? "" : ",";
    return { head: `${begin}${link}${comma}"b64_json":"`, bytes, tail: `"${revised}${end}` };
  });
  const lengths = parts.map(
    ({ head, bytes, tail }) =>
      Buffer.byteLength(head) + base64Length(bytes.length) + Buffer.byteLength(tail),
  );
  const end = lengths.reduce((sum, length) => sum + length, ROOM_BYTES);
  const buffer = Buffer.allocUnsafe(end + ROOM_BYTES);
  let at = ROOM_BYTES;
  for (const { head, bytes, tail } of parts) {
    at += buffer.write(head, at);
    await writeBase64(bytes, buffer, at);
    at += base64Length(bytes.length);
    at += buffer.write(tail, at);
  }
  return { buffer, start: ROOM_BYTES, end };
}

const NONE = Buffer.alloc(0);

/** Returns the body of an answer (spec 2.7). */
export function imagesBody(
  { buffer, start, end }: RenderedImages,
  created: number,
  facts: ImageFacts,
  { usage, costUsd }: AnswerFacts,
): Uint8Array {
  const head = `{"created":${created},"data":`;
  const rest = JSON.stringify({ ...factMembers(facts), usage: usageBody(usage, costUsd) });
  const tail = `,${rest.slice(1)}`;
  const tailBytes = Buffer.byteLength(tail);
  if (head.length > start || tailBytes > ROOM_BYTES)
    throw new Error("an answer's members besides its images are too large");
  buffer.write(head, start - head.length);
  buffer.write(tail, end);
  return buffer.subarray(start - head.length, end + tailBytes);
}

export function factMembers(facts: ImageFacts): Record<string, string | undefined> {
  return {
    size: facts.size,
    quality: facts.quality,
    background: facts.background,
    output_format: facts.outputFormat,
  };
}

/** Returns the usage in OpenAI's form, with `images` and `cost` added. */
export function usageBody(usage: Usage, cost: number): Record<string, unknown> {
  const { promptTokens, completionTokens, imagePromptTokens = 0 } = usage;
  const { cachedImagePromptTokens = 0 } = usage;
  const imageTokens = Math.min(promptTokens, imagePromptTokens + cachedImagePromptTokens);
  return {
    input_tokens: promptTokens,
    output_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    input_tokens_details: {
      text_tokens: promptTokens - imageTokens,
      image_tokens: imageTokens,
    },
    images: usage.images ?? 0,
    cost,
  };
}

/** Returns a frame of a stream, with its bytes as Latin-1 characters. */
export function imageFrame(
  event: { readonly type: string } & Readonly<Record<string, unknown>>,
  base64: string,
): string {
  const json = latin1OfText(JSON.stringify(event));
  return `event: ${event.type}\ndata: ${json.slice(0, -1)},"b64_json":"${base64}"}\n\n`;
}
