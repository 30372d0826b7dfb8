import type { PartKind } from "../platform/config/provider-types/definition.ts";
import { providerType } from "../platform/config/provider-types.ts";

export type { PartKind };

/** Kinds by the type of a part. The kind of a file depends on its content. */
const KINDS: ReadonlyMap<string, PartKind | "text"> = new Map<string, PartKind | "text">([
  ["text", "text"],
  ["refusal", "text"],
  ["image", "image"],
  ["image_url", "image"],
  ["input_image", "image"],
  ["audio", "audio"],
  ["audio_url", "audio"],
  ["input_audio", "audio"],
  ["video", "video"],
  ["video_url", "video"],
  ["input_video", "video"],
]);

/** Matches the media type of a data URL, without its parameters. */
const MEDIA_TYPE = /^data:([\w.+-]+)\/([\w.+-]+)/i;

/** Returns the kind of a part. Undefined for text. */
export function kindOfPart(part: {
  readonly type: string;
  readonly file?: unknown;
  readonly file_id?: unknown;
}): PartKind | undefined {
  // Mistral's parts contain the id themselves.
  if (typeof part.file_id === "string") return "file_id";
  if (part.type === "file") return kindOfFile(part.file);
  const kind = KINDS.get(part.type) ?? "other";
  return kind === "text" ? undefined : kind;
}

const WEB_ADDRESS = /^https?:\/\//i;

/** Returns true if the provider has to fetch the part's content from a URL. */
export function isAtWebAddress(part: Readonly<Record<string, unknown>>): boolean {
  const { type, file } = part;
  const content = type === "file" ? file : part[type as string];
  const members = (content ?? {}) as Readonly<Record<string, unknown>>;
  const url = typeof content === "string" ? content : (members.url ?? members.file_data);
  return typeof url === "string" && WEB_ADDRESS.test(url.slice(0, "https://".length));
}

/**
 * Returns the kind of a file in OpenAI's form: `{file_data, filename}` with a data URL or, as at OpenRouter, a web
 * address; or `{file_id}`.
 */
function kindOfFile(file: unknown): PartKind {
  const { file_data: data, file_id: id } = (file ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof id === "string") return "file_id";
  if (typeof data !== "string") return "file";
  const [, group, subtype] = MEDIA_TYPE.exec(data.slice(0, MAX_TYPE_CHARACTERS)) ?? [];
  switch (group?.toLowerCase()) {
    case "image":
    case "audio":
    case "video":
      return group.toLowerCase() as PartKind;
    case "application":
      return subtype?.toLowerCase() === "pdf" ? "file" : "binary_file";
    default:
      return "file";
  }
}

const MAX_TYPE_CHARACTERS = 200;

/**
 * Returns true if models with OpenAI's API accept parts of a kind. Unknown types count as accepting all; the provider
 * rejects the rest itself.
 */
export function takesPart(type: string, kind: PartKind): boolean {
  return providerType(type)?.unsupportedParts?.includes(kind) !== true;
}
