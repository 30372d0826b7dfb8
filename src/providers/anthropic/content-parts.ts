import { type DataOfUrl, dataOfUrl } from "../../lib/data-url.ts";
import { isFields } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";
import { cacheControlOf } from "./cache-control.ts";

type Fields = Readonly<Record<string, unknown>>;
export type Block = Record<string, unknown> & { readonly type: string };

/**
 * Returns the content of a message as blocks: text, images and documents, by URL or in base64. Empty text is
 * dropped because Anthropic rejects it. Throws ProviderFailure that names a part without a counterpart.
 */
export function blocksOf(content: unknown, path: string): Block[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  if (!Array.isArray(content)) return [];
  const blocks: Block[] = [];
  for (const [index, part] of content.entries()) {
    const block = blockOf(part as Fields, `${path}.${index}`);
    if (block === undefined) continue;
    const cacheControl = cacheControlOf(part);
    if (cacheControl !== undefined) block.cache_control = cacheControl;
    const { citations } = part as Fields;
    if (block.type === "document" && isFields(citations)) block.citations = citations;
    blocks.push(block);
  }
  return blocks;
}

function blockOf(part: Fields, path: string): Block | undefined {
  switch (part.type) {
    case "text":
      return textBlock(part.text);
    case "refusal":
      return textBlock(part.refusal);
    case "image_url":
      return imageBlock(isFields(part.image_url) ? part.image_url.url : part.image_url, path);
    case "file":
      return fileBlock(isFields(part.file) ? part.file : {}, path);
    default:
      throw unsupported(`${path}.type`, `parts of type ${shown(part.type)}`);
  }
}

function textBlock(text: unknown): Block | undefined {
  return typeof text === "string" && text !== "" ? { type: "text", text } : undefined;
}

function imageBlock(url: unknown, path: string): Block {
  if (typeof url !== "string") throw unsupported(path, "an image without a URL");
  const data = dataOfUrl(url);
  if (data === undefined) return { type: "image", source: { type: "url", url } };
  return mediaBlock(data, undefined, path);
}

/**
 * Returns the block of a file in OpenAI's form: `file_data` with a data URL or the URL of the file, and
 * `filename`.
 */
function fileBlock({ file_data: file, filename, file_id: id }: Fields, path: string): Block {
  if (typeof file !== "string") {
    throw unsupported(path, id === undefined ? "a file without file_data" : "file_id");
  }
  const title = typeof filename === "string" ? filename : undefined;
  if (/^https?:\/\//i.test(file)) return documentBlock({ type: "url", url: file }, title);
  // Without a media type it is read as PDF, like almost all files that clients send.
  const data = dataOfUrl(file) ?? { mediaType: "application/pdf", base64: file };
  return mediaBlock(data, title, path);
}

function mediaBlock({ mediaType, base64 }: DataOfUrl, title: string | undefined, path: string) {
  const source = { type: "base64", media_type: mediaType, data: base64 };
  if (mediaType.startsWith("image/")) return { type: "image", source };
  if (mediaType === "application/pdf") return documentBlock(source, title);
  if (mediaType.startsWith("text/")) {
    const text = Buffer.from(base64, "base64").toString("utf8");
    return documentBlock({ type: "text", media_type: "text/plain", data: text }, title);
  }
  throw unsupported(path, `files of type ${shown(mediaType)}`);
}

function documentBlock(source: Fields, title: string | undefined): Block {
  return { type: "document", source, ...(title !== undefined && { title }) };
}

const MAX_SHOWN_CHARACTERS = 100;

function shown(value: unknown): string {
  return JSON.stringify(String(value).slice(0, MAX_SHOWN_CHARACTERS));
}

/** Returns the failure for a request that the Messages API cannot express. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `Anthropic's models do not support ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
