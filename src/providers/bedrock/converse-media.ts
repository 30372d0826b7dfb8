import { type DataOfUrl, dataOfUrl } from "../../lib/data-url.ts";
import { isFields } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

type Fields = Readonly<Record<string, unknown>>;
/**
 * A content block with exactly one member:
 * https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html.
 */
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

/** Translates the content parts of one request. Bedrock demands distinct document names within a request. */
export class MediaReader {
  readonly #documentNames = new Set<string>();
  /** Number of the next document by requested name. */
  readonly #nextNumbers = new Map<string, number>();

  /**
   * Returns the block of a content part. Returns undefined for blank text, which Bedrock rejects. Throws
   * ProviderFailure that names a part without a counterpart.
   */
  blockOf(part: Fields, path: string): Block | undefined {
    switch (part.type) {
      case "text":
        return textBlock(part.text);
      case "refusal":
        return textBlock(part.refusal);
      case "image_url":
      case "video_url":
        return this.#referred(urlOf(part[part.type]), undefined, `${path}.${part.type}`);
      case "input_audio":
        return audioBlock(part.input_audio, `${path}.input_audio`);
      case "file":
        return this.#file(isFields(part.file) ? part.file : {}, `${path}.file`);
      default:
        throw unsupported(`${path}.type`, `parts of type ${shown(part.type)}`);
    }
  }

  #file({ file_data: file, filename, file_id: id }: Fields, path: string): Block {
    if (typeof file !== "string") {
      throw unsupported(path, id === undefined ? "a file without file_data" : "file_id");
    }
    const name = typeof filename === "string" ? filename : undefined;
    return this.#referred(file, name, `${path}.file_data`);
  }

  #referred(url: unknown, name: string | undefined, path: string): Block {
    if (typeof url !== "string") throw unsupported(path, "media without a URL");
    const data = dataOfUrl(url);
    if (data !== undefined) return this.#inline(data, name, path);
    // Bedrock would read an `s3:` URL with the rights of the operator's key, not those of the caller.
    if (/^[a-z][a-z0-9]*:/i.test(url)) throw unsupported(path, "URLs other than data URLs");
    // Without a media type it is read as PDF, like almost all files that clients send.
    return this.#inline({ mediaType: "application/pdf", base64: url }, name, path);
  }

  #inline({ mediaType, base64 }: DataOfUrl, name: string | undefined, path: string): Block {
    const source = { bytes: base64 };
    const image = valueIn(IMAGES, mediaType);
    if (image !== undefined) return { image: { format: image, source } };
    const video = valueIn(VIDEOS, mediaType);
    if (video !== undefined) return { video: { format: video, source } };
    const document =
      valueIn(DOCUMENTS, mediaType) ?? (mediaType.startsWith("text/") ? "txt" : undefined);
    if (document !== undefined) return this.#document(document, source, name);
    throw unsupported(path, `files of type ${shown(mediaType)}`);
  }

  #document(format: string, source: Fields, filename: string | undefined): Block {
    // Replaces the characters that Bedrock does not allow in a name.
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

function audioBlock(audio: unknown, path: string): Block {
  const { data, format } = isFields(audio) ? audio : {};
  if (typeof data !== "string" || typeof format !== "string") {
    throw unsupported(path, "audio without data and format");
  }
  return { audio: { format, source: { bytes: data } } };
}

function valueIn(table: Readonly<Record<string, string>>, name: string): string | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

const MAX_SHOWN_CHARACTERS = 100;

function shown(value: unknown): string {
  return JSON.stringify(String(value).slice(0, MAX_SHOWN_CHARACTERS));
}

/** Returns the failure for a request that Converse cannot express. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `Bedrock does not support ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
