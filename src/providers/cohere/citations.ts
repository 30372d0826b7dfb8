import { isFields } from "../../lib/json.ts";

type Fields = Readonly<Record<string, unknown>>;

const MAX_ANNOTATIONS = 1_000;
/** Members with the URL of a document or tool result. */
const URL_NAMES = ["url", "uri", "link"];

/** The text of an answer by block, because citations have offsets within a block. */
export class CitedText {
  readonly #blocks = new Map<unknown, { start: number; text: string }>();
  #length = 0;
  #annotations = 0;

  add(block: unknown, text: string): void {
    let entry = this.#blocks.get(block);
    if (entry === undefined) {
      entry = { start: this.#length, text: "" };
      this.#blocks.set(block, entry);
    }
    entry.text += text;
    this.#length += text.length;
  }

  /**
   * Returns a citation in OpenAI's form (`url_citation`), one for each source with a URL. OpenAI's form has
   * no counterpart for other sources, and for citations in thinking and plans.
   */
  annotationsOf(citation: unknown): Fields[] {
    if (!isFields(citation)) return [];
    const { type, sources, content_index: index = this.#onlyBlock(), start, end, text } = citation;
    const block = this.#blocks.get(index);
    if (block === undefined || (type !== undefined && type !== "TEXT_CONTENT")) return [];
    if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end)) return [];
    const [from, to] = offsetsOf(block.text, start as number, end as number, text);
    const position = { start_index: block.start + from, end_index: block.start + to };
    const annotations = (Array.isArray(sources) ? sources : [])
      .flatMap(sourceOf)
      .slice(0, MAX_ANNOTATIONS - this.#annotations)
      .map((source) => ({ type: "url_citation", url_citation: { ...source, ...position } }));
    this.#annotations += annotations.length;
    return annotations;
  }

  #onlyBlock(): unknown {
    return this.#blocks.keys().next().value;
  }
}

/** Returns the offsets in UTF-16 code units, which clients use. Cohere sometimes counts characters. */
function offsetsOf(text: string, start: number, end: number, cited: unknown): [number, number] {
  if (typeof cited !== "string" || text.slice(start, end) === cited) return [start, end];
  const characters = [...text];
  const from = characters.slice(0, start).join("").length;
  const to = from + characters.slice(start, end).join("").length;
  return text.slice(from, to) === cited ? [from, to] : [start, end];
}

function sourceOf(source: unknown): { url: string; title: string }[] {
  if (!isFields(source)) return [];
  const holder = [source.document, source.tool_output, source].find(isFields)!;
  const url = URL_NAMES.map((name) => holder[name]).find(isWebUrl);
  if (url === undefined) return [];
  return [{ url, title: typeof holder.title === "string" ? holder.title : "" }];
}

function isWebUrl(value: unknown): value is string {
  return typeof value === "string" && /^https?:\/\//i.test(value);
}
