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
/** Room for two escaped texts of 32,000 characters each, and the other fields. */
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
/** The mask of an edit. Its transparent areas are replaced. */
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
    description: "The images, or a stream of images if `stream` is true.",
    schema: imagesAnswer,
    eventSchema: imageEvent,
  },
};

/** Returns the image routes (spec 4.8). */
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
      operationId: "images.generations.create",
      summary: "Create images",
      access,
      body: generationBody,
      maxBodyBytes: MAX_BODY_BYTES,
      allowsUnknownFields: true,
      responses: streamed,
    }),
    paidRoute(callOf("edit", edits), {
      path: edits,
      tag,
      operationId: "images.edits.create",
      summary: "Edit images",
      access,
      modelForm: { fields: editFields, files: { image, mask } },
      allowsUnknownFields: true,
      responses: streamed,
    }),
    paidRoute(callOf("vary", variations), {
      path: variations,
      tag,
      operationId: "images.variations.create",
      summary: "Create image variations",
      access,
      modelForm: { fields: variationFields, files: { image: { ...image, maxFiles: 1 } } },
      allowsUnknownFields: true,
      responses: { 200: { description: "The images.", schema: imagesAnswer } },
    }),
  ];
}

const MAX_SIDE_PIXELS = 16_384;
/** Maximum pixels of an image. A decoder uses several bytes per pixel, whatever the size of the file. */
const MAX_PIXELS = 100_000_000;

/** Reads the image's header only. Throws 400 if the dimensions are too large or cannot be read. */
async function assertImageSize(file: MediaFile, name: string): Promise<void> {
  const header = readImageHeader(await headOf(file));
  if (typeof header === "string" || header.width < 1 || header.height < 1) {
    throw invalid(name, "is damaged: its dimensions cannot be read");
  }
  const { width, height } = header;
  if (Math.max(width, height) <= MAX_SIDE_PIXELS && width * height <= MAX_PIXELS) return;
  throw invalid(
    name,
    `has ${width} × ${height} pixels; an image can have at most ${MAX_SIDE_PIXELS} per side and ${MAX_PIXELS} in total`,
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
