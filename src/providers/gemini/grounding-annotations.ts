import { isFields } from "../../lib/json.ts";

type Fields = Readonly<Record<string, unknown>>;

const MAX_ANNOTATIONS = 1_000;

/**
 * Returns the sources of an answer in OpenAI's form (`url_citation`), from `groundingMetadata`
 * (https://ai.google.dev/api/generate-content#GroundingMetadata): one for each source of each passage, or one
 * for each source if there are no passages.
 *
 * @param text the whole text of the answer; passages are byte ranges of it
 */
export function groundingAnnotations(metadata: unknown, text: string): Fields[] {
  if (!isFields(metadata)) return [];
  const sources = listOf(metadata.groundingChunks).map(({ web }) => sourceOf(web));
  if (sources.length === 0) return [];
  const supports = listOf(metadata.groundingSupports);
  const bytes = Buffer.from(text);
  const annotations: Fields[] = [];
  for (const { segment, groundingChunkIndices: indices } of supports) {
    const range = rangeOf(segment, bytes);
    for (const index of Array.isArray(indices) ? indices : []) {
      const source = sources[index as number];
      if (source !== undefined) annotations.push(citation(source, range));
      if (annotations.length === MAX_ANNOTATIONS) return annotations;
    }
  }
  if (annotations.length > 0) return annotations;
  const everywhere = { start_index: 0, end_index: text.length };
  return sources
    .slice(0, MAX_ANNOTATIONS)
    .flatMap((source) => (source === undefined ? [] : [citation(source, everywhere)]));
}

interface Source {
  readonly url: string;
  readonly title: string;
}

function sourceOf(web: unknown): Source | undefined {
  if (!isFields(web) || typeof web.uri !== "string") return undefined;
  return { url: web.uri, title: typeof web.title === "string" ? web.title : "" };
}

function citation(source: Source, range: Fields): Fields {
  return { type: "url_citation", url_citation: { ...source, ...range } };
}

/** Converts byte offsets to offsets of UTF-16 code units, which clients use. */
function rangeOf(segment: unknown, bytes: Buffer): Fields {
  const { startIndex, endIndex } = isFields(segment) ? segment : {};
  const position = (index: unknown, absent: number) =>
    bytes.toString("utf8", 0, typeof index === "number" && index >= 0 ? index : absent).length;
  return { start_index: position(startIndex, 0), end_index: position(endIndex, bytes.length) };
}

function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : [];
}
