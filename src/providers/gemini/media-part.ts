import { isFields } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/** https://ai.google.dev/api/caching#Part, as far as requests of a chat need it. */
export type Part = Readonly<Record<string, unknown>>;

/** Media types by the extension of an address. */
const TYPES_BY_ENDING: Readonly<Record<string, string>> = {
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
 * Translates a content part. Throws ProviderFailure, with the place as its `param`, for a kind that Gemini does
 * not have.
 */
export function partOf(part: Fields, place: string): Part {
  switch (part.type) {
    case "text":
      return { text: part.text };
    case "refusal":
      return { text: textAt(part.refusal, `${place}.refusal`) };
    case "image_url":
    case "video_url":
    case "audio_url":
      return referredPart(urlOf(part[part.type], `${place}.${part.type}`), place);
    case "input_audio":
      return soundPart(part.input_audio, `${place}.input_audio`);
    case "file":
      return filePart(part.file, `${place}.file`);
    default:
      throw rejected(`${place}.type`, `Gemini has no content of type ${shown(part.type)}.`);
  }
}

/** OpenAI's form is an object; some clients send the address alone. */
function urlOf(value: unknown, place: string): string {
  return isFields(value) ? textAt(value.url, `${place}.url`) : textAt(value, place);
}

function soundPart(sound: unknown, place: string): Part {
  if (!isFields(sound)) throw rejected(place, "It has to be an object.");
  const data = textAt(sound.data, `${place}.data`);
  const format = textAt(sound.format, `${place}.format`);
  if (!/^[a-z0-9.+-]{1,32}$/.test(format)) throw rejected(`${place}.format`, "No such format.");
  return { inlineData: { mimeType: `audio/${format}`, data } };
}

/** `file_data` is a data URL, or, as in OpenRouter's interface, an address. */
function filePart(file: unknown, place: string): Part {
  if (!isFields(file)) throw rejected(place, "It has to be an object.");
  if (file.file_data === undefined || file.file_data === null) {
    throw rejected(place, "Gemini needs the file itself, as file_data.");
  }
  return referredPart(textAt(file.file_data, `${place}.file_data`), `${place}.file_data`);
}

/** A data URL becomes inline data; Google fetches what an address refers to. */
function referredPart(url: string, place: string): Part {
  if (url.startsWith("data:")) return { inlineData: inlineData(url, place) };
  const address = addressOf(url);
  if (address === undefined) throw rejected(place, "It has to be a data URL or an address.");
  const ending = /\.([a-z0-9]{2,4})$/i.exec(address.pathname)?.[1]?.toLowerCase() ?? "";
  const mimeType = Object.hasOwn(TYPES_BY_ENDING, ending) ? TYPES_BY_ENDING[ending] : undefined;
  return { fileData: { ...(mimeType !== undefined && { mimeType }), fileUri: address.href } };
}

/** Where Google keeps the files that were uploaded for Gemini's models. */
const GOOGLES_FILES = /(?:^|[.-])generativelanguage(?:\.[a-z0-9.-]+)?\.googleapis\.com\.?$/;

/**
 * Of the web alone: Google would read a `gs:` address, and an uploaded file, with the rights of whose key is used,
 * often the operator's.
 */
function addressOf(url: string): URL | undefined {
  const address = URL.parse(url);
  const isOfWeb = address !== null && ["https:", "http:"].includes(address.protocol);
  return isOfWeb && !GOOGLES_FILES.test(address.hostname) ? address : undefined;
}

/** RFC 2397. Data that is not in base64 is text. */
function inlineData(url: string, place: string): { mimeType: string; data: string } {
  const comma = url.indexOf(",");
  if (comma < 0 || comma > 1_000) throw rejected(place, "The data URL has no data.");
  const [mimeType = "", ...parameters] = url.slice("data:".length, comma).split(";");
  const data = url.slice(comma + 1);
  const isBase64 = parameters.some((one) => one.trim().toLowerCase() === "base64");
  return {
    mimeType: mimeType === "" ? "text/plain" : mimeType,
    data: isBase64 ? data : Buffer.from(decoded(data, place)).toString("base64"),
  };
}

function decoded(data: string, place: string): string {
  try {
    return decodeURIComponent(data);
  } catch {
    throw rejected(place, "The data of the data URL cannot be decoded.");
  }
}

export function textAt(value: unknown, place: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw rejected(place, "It has to be a text.");
}

export function rejected(param: string, what: string): ProviderFailure {
  return new ProviderFailure("rejected", `${param}: ${what}`, { param });
}

function shown(value: unknown): string {
  return JSON.stringify(String(value).slice(0, 60));
}
