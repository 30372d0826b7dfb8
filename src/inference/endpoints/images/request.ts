import type { ReceivedForm } from "../../../http/model-form.ts";
import { publicUrl } from "../../../http/request-headers.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { IMAGE_SYNONYMS } from "../../../providers/image-fields.ts";
import type { ImageCall, MediaFile } from "../../../providers/media.ts";
import { type AcceptedRequest, assertRecordable, type CommonFields } from "../../call/endpoint.ts";
import { MEDIA_PATH } from "../../media-links/media-links.ts";
import { GATEWAY_FIELDS } from "./schema.ts";

/** A request for images that has passed its schema. */
export interface ImagesFields extends CommonFields {
  readonly prompt?: string;
  readonly n?: number | null;
  readonly size?: string | null;
  readonly response_format?: "url" | "b64_json" | null;
  readonly quality?: string | null;
  readonly background?: string | null;
  readonly output_format?: string | null;
  readonly partial_images?: number | null;
  readonly negative_prompt?: string | null;
}

export interface AcceptedImages extends AcceptedRequest {
  readonly fields: ImagesFields;
  readonly task: ImageCall["task"];
  /** The prompt. Empty for variations. */
  readonly prompt: string;
  readonly count: number;
  /** The images to edit or vary. */
  readonly images: readonly MediaFile[];
  readonly mask: MediaFile | undefined;
  /** Fields that a model might not support, including unknown fields. No value is null. */
  readonly requested: Readonly<Record<string, unknown>>;
  /** The beginning of the links. Undefined if the images are returned as base64. */
  readonly linkBase: string | undefined;
}

/** Accepts a generation request. Throws 400 if a field is invalid. */
export function acceptGeneration(
  body: unknown,
  headers: Headers,
  publicBase: string | undefined,
): AcceptedImages {
  return accept("generate", { fields: body as ImagesFields, files: {} }, headers, publicBase);
}

/** Accepts an edit or a variation, which are sent as forms. Throws 400 if a field is invalid. */
export function acceptForm(
  task: "edit" | "vary",
  form: unknown,
  headers: Headers,
  publicBase: string | undefined,
): AcceptedImages {
  return accept(task, form as ReceivedForm<ImagesFields>, headers, publicBase);
}

function accept(
  task: ImageCall["task"],
  { fields, files }: ReceivedForm<ImagesFields>,
  headers: Headers,
  publicBase: string | undefined,
): AcceptedImages {
  assertRecordable(fields);
  assertCounted(fields);
  return {
    fields,
    task,
    prompt: task === "vary" ? "" : fields.prompt!,
    count: fields.n ?? 1,
    images: files.image ?? [],
    mask: files.mask?.[0],
    requested: requestedFields(fields),
    linkBase: isLinked(fields) ? publicUrl(`${MEDIA_PATH}/`, { headers }, publicBase) : undefined,
  };
}

/** Throws 400 if the request uses another name for a field that determines the hold. */
function assertCounted(fields: ImagesFields): void {
  for (const field in IMAGE_SYNONYMS) {
    if (!Object.hasOwn(fields, field) || (fields as Record<string, unknown>)[field] === null) {
      continue;
    }
    throw new GatewayError(
      "unsupported_parameter",
      `${field} is not supported: use ${IMAGE_SYNONYMS[field]}.`,
      { param: field },
    );
  }
}

/**
 * Returns true if the answer has links. Streams contain the images themselves. Throws 400 if a stream
 * requests links.
 */
function isLinked({ response_format: format, stream }: ImagesFields): boolean {
  if (stream !== true) return format !== "b64_json";
  if (format !== "url") return false;
  throw new GatewayError(
    "unsupported_parameter",
    "A stream contains its images as b64_json; response_format url needs stream false.",
    { param: "response_format" },
  );
}

function requestedFields(fields: ImagesFields): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(
      ([name, value]) => value !== null && value !== undefined && !GATEWAY_FIELDS.has(name),
    ),
  );
}
