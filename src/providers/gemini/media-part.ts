import { isFields } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The members of https://ai.google.dev/api/caching#Part that chat requests need. */
export type Part = Readonly<Record<string, unknown>>;

/** Media types by the file extension of a URL. */
const TYPES_BY_EXTENSION: Readonly<Record<string, string>> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  webp: "image/webp",
  gif: "image/gif",
  heic: "image/heic",
  heif: "image/heif",
  mp3: "audio/mp3",
  wav: "audio/wav",
  flac: "audio/flac",
  ogg: "audio/ogg",
  aac: "audio/aac",
  aiff: "audio/aiff",
  m4a: "audio/m4a",
  mp4: "video/mp4",
  mov: "video/quicktime",
  mpeg: "video/mpeg",
  webm: "video/webm",
  pdf: "application/pdf",
  txt: "text/plain",
  md: "text/markdown",
  csv: "text/csv",
  html: "text/html",
  xml: "text/xml",
};

/**
 * Translates a content part. Throws ProviderFailure for a kind that Gemini does not support, with the part's
 * path as its `param`.
 */
export function partOf(part: Fields, path: string): Part {
  switch (part.type) {
    case "text":
      return { text: part.text };
    case "refusal":
      return { text: textAt(part.refusal, `${path}.refusal`) };
    case "image_url":
    case "video_url":
    case "audio_url":
      return referredPart(urlOf(part[part.type], `${path}.${part.type}`), path);
    case "input_audio":
      return audioPart(part.input_audio, `${path}.input_audio`);
    case "file":
      return filePart(part.file, `${path}.file`);
    default:
      throw rejected(
        `${path}.type`,
        `Gemini does not support content of type ${shown(part.type)}.`,
      );
  }
}

/** Returns the URL of a part. OpenAI's form is an object, but some clients send the URL alone. */
function urlOf(value: unknown, path: string): string {
  return isFields(value) ? textAt(value.url, `${path}.url`) : textAt(value, path);
}

function audioPart(audio: unknown, path: string): Part {
  if (!isFields(audio)) throw rejected(path, "Must be an object.");
  const data = textAt(audio.data, `${path}.data`);
  const format = textAt(audio.format, `${path}.format`);
  if (!/^[a-z0-9.+-]{1,32}$/.test(format)) throw rejected(`${path}.format`, "Unknown format.");
  return { inlineData: { mimeType: `audio/${format}`, data } };
}

/** Returns the part of a file. `file_data` is a data URL, or, as in OpenRouter's API, a web URL. */
function filePart(file: unknown, path: string): Part {
  if (!isFields(file)) throw rejected(path, "Must be an object.");
  if (file.file_data === undefined || file.file_data === null) {
    throw rejected(path, "Gemini requires the file itself in file_data.");
  }
  return referredPart(textAt(file.file_data, `${path}.file_data`), `${path}.file_data`);
}

/** Returns inline data for a data URL, or a reference for a web URL, which Google fetches. */
function referredPart(url: string, path: string): Part {
  if (url.startsWith("data:")) return { inlineData: inlineData(url, path) };
  const webUrl = webUrlOf(url);
  if (webUrl === undefined) throw rejected(path, "Must be a data URL or a web URL.");
  const extension = /\.([a-z0-9]{2,4})$/i.exec(webUrl.pathname)?.[1]?.toLowerCase() ?? "";
  const mimeType = Object.hasOwn(TYPES_BY_EXTENSION, extension)
    ? TYPES_BY_EXTENSION[extension]
    : undefined;
  return { fileData: { ...(mimeType !== undefined && { mimeType }), fileUri: webUrl.href } };
}

/** Hosts of the files that were uploaded for Gemini's models. */
const GOOGLES_FILES = /(?:^|[.-])generativelanguage(?:\.[a-z0-9.-]+)?\.googleapis\.com\.?$/;

/**
 * Returns the URL if it is a web URL. Google would read a `gs:` URL or an uploaded file with the rights of
 * the key in use, which is often the operator's.
 */
function webUrlOf(url: string): URL | undefined {
  const parsed = URL.parse(url);
  const isWeb = parsed !== null && ["https:", "http:"].includes(parsed.protocol);
  return isWeb && !GOOGLES_FILES.test(parsed.hostname) ? parsed : undefined;
}

/** Returns the data of a data URL (RFC 2397). Data without base64 is text. */
function inlineData(url: string, path: string): { mimeType: string; data: string } {
  const comma = url.indexOf(",");
  if (comma < 0 || comma > 1_000) throw rejected(path, "The data URL has no data.");
  const [mimeType = "", ...parameters] = url.slice("data:".length, comma).split(";");
  const data = url.slice(comma + 1);
  const isBase64 = parameters.some((parameter) => parameter.trim().toLowerCase() === "base64");
  return {
    mimeType: mimeType === "" ? "text/plain" : mimeType,
    data: isBase64 ? data : Buffer.from(decoded(data, path)).toString("base64"),
  };
}

function decoded(data: string, path: string): string {
  try {
    return decodeURIComponent(data);
  } catch {
    throw rejected(path, "The data of the data URL cannot be decoded.");
  }
}

export function textAt(value: unknown, path: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw rejected(path, "Must be a non-empty string.");
}

export function rejected(param: string, what: string): ProviderFailure {
  return new ProviderFailure("rejected", `${param}: ${what}`, { param });
}

function shown(value: unknown): string {
  return JSON.stringify(String(value).slice(0, 60));
}
