import type { FileRule } from "../../../http/model-form.ts";
import type { RouteDefinition } from "../../../http/route.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { MAX_IMAGE_HEAD_BYTES, readImageHeader } from "../../../lib/image-header.ts";
import type { ImageCall, MediaFile } from "../../../providers/media.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { paidRoute } from "../paid-route.ts";
import { type ImageServices, ImagesEndpoint } from "./endpoint.ts";
import { editFields, generationBody, imageEvent, imagesAnswer, variationFields } from "./schema.ts";

const MEBIBYTE = 1024 * 1024;
/** Two texts of 32,000 characters, each of them escaped, and what belongs to the request. */
const MAX_BODY_BYTES = MEBIBYTE;
const MAX_INPUT_IMAGES = 16;

const image: FileRule = {
  isRequired: true,
  maxFiles: MAX_INPUT_IMAGES,
  maxBytes: 50 * MEBIBYTE,
  excess: "invalid_body",
  types: new Set(["image/png", "image/jpeg", "image/webp"]),
  typeNames: "a PNG, JPEG or WebP image",
  check: assertImageSize,
};
/** Transparency marks what is to be replaced. */
const mask: FileRule = {
  maxFiles: 1,
  maxBytes: 4 * MEBIBYTE,
  excess: "invalid_body",
  types: new Set(["image/png"]),
  typeNames: "a PNG image",
  check: assertImageSize,
};

const access = { kind: "model", scope: "images" } as const;
const tag = "Images";
const streamed = {
  200: {
    description: "The images, or with stream true a stream of them",
    schema: imagesAnswer,
    eventSchema: imageEvent,
  },
};

/** Images (spec 4.8). */
export function imageRoutes(
  dependencies: PaidCallDependencies,
  services: ImageServices,
): RouteDefinition[] {
  const callOf = (task: ImageCall["task"], path: string) =>
    new PaidCall(dependencies, new ImagesEndpoint(task, path, services));
  const generations = "/v1/images/generations";
  const edits = "/v1/images/edits";
  const variations = "/v1/images/variations";
  return [
    paidRoute(callOf("generate", generations), {
      path: generations,
      tag,
      summary: "Generate images of a prompt",
      access,
      body: generationBody,
      maxBodyBytes: MAX_BODY_BYTES,
      allowsUnknownFields: true,
      responses: streamed,
    }),
    paidRoute(callOf("edit", edits), {
      path: edits,
      tag,
      summary: "Edit images by a prompt",
      access,
      modelForm: { fields: editFields, files: { image, mask } },
      allowsUnknownFields: true,
      responses: streamed,
    }),
    paidRoute(callOf("vary", variations), {
      path: variations,
      tag,
      summary: "Make variations of an image",
      access,
      modelForm: { fields: variationFields, files: { image: { ...image, maxFiles: 1 } } },
      allowsUnknownFields: true,
      responses: { 200: { description: "The images", schema: imagesAnswer } },
    }),
  ];
}

const MAX_SIDE_PIXELS = 16_384;
/** Who decodes an image takes several bytes for each of its pixels, however short its file is. */
const MAX_PIXELS = 100_000_000;

/** Reads as much of an image as states its dimensions; nothing is decoded. Throws 400. */
async function assertImageSize(file: MediaFile, name: string): Promise<void> {
  const header = readImageHeader(await headOf(file));
  if (typeof header === "string" || header.width < 1 || header.height < 1) {
    throw invalid(name, "is damaged: its dimensions cannot be read");
  }
  const { width, height } = header;
  if (Math.max(width, height) <= MAX_SIDE_PIXELS && width * height <= MAX_PIXELS) return;
  throw invalid(
    name,
    `has ${width} × ${height} pixels; an image may have ${MAX_SIDE_PIXELS} a side and ${MAX_PIXELS} in all`,
  );
}

async function headOf(file: MediaFile): Promise<Uint8Array> {
  const reader = file.stream().getReader();
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  while (bytes < MAX_IMAGE_HEAD_BYTES) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    bytes += value.byteLength;
    const head = Buffer.concat(pieces);
    if (readImageHeader(head) !== "unfinished") return head;
  }
  await reader.cancel();
  return Buffer.concat(pieces);
}

function invalid(name: string, what: string): GatewayError {
  return new GatewayError("invalid_body", `The form's part "${name}" ${what}.`, { param: name });
}
