/**
 * What a content part of a message is, as far as wires differ in what they take. `binary_file` is a file of a
 * type that is neither PDF, text nor a medium; `file_id` names a file at one provider; `other` is a part of a
 * type that is not known here.
 */
export type PartKind = "image" | "audio" | "video" | "file" | "binary_file" | "file_id" | "other";

/** By the type of a part; a file is one of several kinds. */
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

/** Of data URLs, and of the parameters behind it nothing. */
const MEDIA_TYPE = /^data:([\w.+-]+)\/([\w.+-]+)/i;

/** The kind of a part; undefined for text. */
export function kindOfPart(part: {
  readonly type: string;
  readonly file?: unknown;
  readonly file_id?: unknown;
}): PartKind | undefined {
  // Mistral has the id in the part itself.
  if (typeof part.file_id === "string") return "file_id";
  if (part.type === "file") return kindOfFile(part.file);
  const kind = KINDS.get(part.type) ?? "other";
  return kind === "text" ? undefined : kind;
}

const WEB_ADDRESS = /^https?:\/\//i;

/** Whether the provider is to fetch what a part stands for, in place of its bytes. */
export function isAtWebAddress(part: Readonly<Record<string, unknown>>): boolean {
  const { type, file } = part;
  const held = type === "file" ? file : part[type as string];
  const members = (held ?? {}) as Readonly<Record<string, unknown>>;
  const url = typeof held === "string" ? held : (members.url ?? members.file_data);
  return typeof url === "string" && WEB_ADDRESS.test(url.slice(0, "https://".length));
}

/** OpenAI's form: `{file_data, filename}` with a data URL or, as at OpenRouter, an address; or `{file_id}`. */
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

/** By provider type of OpenAI's wire, kinds that its published interface says it lacks. */
const LACKED: Readonly<Record<string, ReadonlySet<PartKind>>> = {
  openai: new Set(["video"]),
  azure: new Set(["video"]),
  // Text alone.
  deepseek: new Set(["image", "audio", "video", "file", "binary_file", "file_id"]),
  groq: new Set(["audio", "video", "file", "binary_file", "file_id"]),
  xai: new Set(["audio", "video"]),
  mistral: new Set(["video"]),
  perplexity: new Set(["audio", "video"]),
};

/** Whether models behind OpenAI's wire take parts of a kind; for what is not known the provider answers. */
export function takesPart(type: string, kind: PartKind): boolean {
  return !(Object.hasOwn(LACKED, type) && LACKED[type]!.has(kind));
}
