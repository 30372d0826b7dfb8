import { type DataOfUrl, dataOfUrl } from "../../lib/data-url.ts";
import { isFields } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

type Fields = Readonly<Record<string, unknown>>;
/** https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html: has one member. */
export type Block = Readonly<Record<string, unknown>>;

const IMAGES: Readonly<Record<string, string>> = {
  "image/png": "png",
  "image/jpeg": "jpeg",
  "image/jpg": "jpeg",
  "image/gif": "gif",
  "image/webp": "webp",
};
const DOCUMENTS: Readonly<Record<string, string>> = {
  "application/pdf": "pdf",
  "text/csv": "csv",
  "application/msword": "doc",
  "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
  "application/vnd.ms-excel": "xls",
  "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
  "text/html": "html",
  "text/markdown": "md",
};
const VIDEOS: Readonly<Record<string, string>> = {
  "video/x-matroska": "mkv",
  "video/quicktime": "mov",
  "video/mp4": "mp4",
  "video/webm": "webm",
  "video/x-flv": "flv",
  "video/mpeg": "mpeg",
  "video/x-ms-wmv": "wmv",
  "video/3gpp": "three_gp",
};
const MAX_NAME_CHARACTERS = 180;

/** Translates the parts of one request, in which no two documents may have one name. */
export class MediaReader {
  readonly #documentNames = new Set<string>();
  /** By the name that was asked for, the number of the next document of that name. */
  readonly #nextNumbers = new Map<string, number>();

  /**
   * The block of a content part; undefined for text that is blank, which says nothing and is refused. Throws
   * ProviderFailure that names the part which has no counterpart.
   */
  blockOf(part: Fields, place: string): Block | undefined {
    switch (part.type) {
      case "text":
        return textBlock(part.text);
      case "refusal":
        return textBlock(part.refusal);
      case "image_url":
      case "video_url":
        return this.#referred(urlOf(part[part.type]), undefined, `${place}.${part.type}`);
      case "input_audio":
        return soundBlock(part.input_audio, `${place}.input_audio`);
      case "file":
        return this.#file(isFields(part.file) ? part.file : {}, `${place}.file`);
      default:
        throw unsupported(`${place}.type`, `parts of type ${shown(part.type)}`);
    }
  }

  #file({ file_data: file, filename, file_id: id }: Fields, place: string): Block {
    if (typeof file !== "string") {
      throw unsupported(place, id === undefined ? "a file without file_data" : "file_id");
    }
    const name = typeof filename === "string" ? filename : undefined;
    return this.#referred(file, name, `${place}.file_data`);
  }

  #referred(url: unknown, name: string | undefined, place: string): Block {
    if (typeof url !== "string") throw unsupported(place, "media without a URL");
    const data = dataOfUrl(url);
    if (data !== undefined) return this.#inline(data, name, place);
    // Bedrock would read `s3:` with the rights of the operator's key, which are not the caller's.
    if (/^[a-z][a-z0-9]*:/i.test(url)) throw unsupported(place, "addresses other than data URLs");
    // Without a type it is what almost all files are that models are given.
    return this.#inline({ mediaType: "application/pdf", base64: url }, name, place);
  }

  #inline({ mediaType, base64 }: DataOfUrl, name: string | undefined, place: string): Block {
    const source = { bytes: base64 };
    const image = own(IMAGES, mediaType);
    if (image !== undefined) return { image: { format: image, source } };
    const video = own(VIDEOS, mediaType);
    if (video !== undefined) return { video: { format: video, source } };
    const document =
      own(DOCUMENTS, mediaType) ?? (mediaType.startsWith("text/") ? "txt" : undefined);
    if (document !== undefined) return this.#document(document, source, name);
    throw unsupported(place, `files of type ${shown(mediaType)}`);
  }

  #document(format: string, source: Fields, filename: string | undefined): Block {
    // All that a name may consist of.
    const stem = (filename ?? "")
      .replace(/\.[a-z0-9]{2,5}$/i, "")
      .replace(/[^a-zA-Z0-9\s()[\]-]+/g, "-")
      .replace(/\s+/g, " ")
      .trim()
      .slice(0, MAX_NAME_CHARACTERS);
    const base = stem === "" ? "document" : stem;
    let name = base;
    let next = this.#nextNumbers.get(base) ?? 2;
    while (this.#documentNames.has(name)) name = `${base} ${next++}`;
    this.#nextNumbers.set(base, next);
    this.#documentNames.add(name);
    return { document: { format, name, source } };
  }
}

export function textBlock(text: unknown): Block | undefined {
  return typeof text === "string" && text.trim() !== "" ? { text } : undefined;
}

function urlOf(value: unknown): unknown {
  return isFields(value) ? value.url : value;
}

function soundBlock(sound: unknown, place: string): Block {
  const { data, format } = isFields(sound) ? sound : {};
  if (typeof data !== "string" || typeof format !== "string") {
    throw unsupported(place, "sound without data and format");
  }
  return { audio: { format, source: { bytes: data } } };
}

function own(table: Readonly<Record<string, string>>, name: string): string | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

const MAX_SHOWN_CHARACTERS = 100;

function shown(value: unknown): string {
  return JSON.stringify(String(value).slice(0, MAX_SHOWN_CHARACTERS));
}

/** The request cannot be said in this wire. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `Bedrock does not take ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
