import { isFields } from "../../lib/json.ts";

type Fields = Readonly<Record<string, unknown>>;

const MAX_ANNOTATIONS = 1_000;
/** Members by which documents and results of tools name where they are from. */
const URL_NAMES = ["url", "uri", "link"];

/** The text of an answer in its blocks, which citations count in. */
export class CitedText {
  readonly #blocks = new Map<unknown, { start: number; text: string }>();
  #length = 0;
  #annotations = 0;

  add(block: unknown, text: string): void {
    let known = this.#blocks.get(block);
    if (known === undefined) {
      known = { start: this.#length, text: "" };
      this.#blocks.set(block, known);
    }
    known.text += text;
    this.#length += text.length;
  }

  /**
   * A citation in OpenAI's form (`url_citation`), one for each source with an address. Other sources, and
   * citations in thinking and plans, have no counterpart there.
   */
  annotationsOf(citation: unknown): Fields[] {
    if (!isFields(citation)) return [];
    const { type, sources, content_index: index = this.#onlyBlock(), start, end, text } = citation;
    const block = this.#blocks.get(index);
    if (block === undefined || (type !== undefined && type !== "TEXT_CONTENT")) return [];
    if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end)) return [];
    const [from, to] = placeOf(block.text, start as number, end as number, text);
    const place = { start_index: block.start + from, end_index: block.start + to };
    const annotations = (Array.isArray(sources) ? sources : [])
      .flatMap(sourceOf)
      .slice(0, MAX_ANNOTATIONS - this.#annotations)
      .map((source) => ({ type: "url_citation", url_citation: { ...source, ...place } }));
    this.#annotations += annotations.length;
    return annotations;
  }

  #onlyBlock(): unknown {
    return this.#blocks.keys().next().value;
  }
}

/** Offsets in UTF-16 code units, which clients use; they may have been counted in characters. */
function placeOf(said: string, start: number, end: number, cited: unknown): [number, number] {
  if (typeof cited !== "string" || said.slice(start, end) === cited) return [start, end];
  const characters = [...said];
  const from = characters.slice(0, start).join("").length;
  const to = from + characters.slice(start, end).join("").length;
  return said.slice(from, to) === cited ? [from, to] : [start, end];
}

function sourceOf(source: unknown): { url: string; title: string }[] {
  if (!isFields(source)) return [];
  const held = [source.document, source.tool_output, source].find(isFields)!;
  const url = URL_NAMES.map((name) => held[name]).find(isAddress);
  if (url === undefined) return [];
  return [{ url, title: typeof held.title === "string" ? held.title : "" }];
}

function isAddress(value: unknown): value is string {
  return typeof value === "string" && /^https?:\/\//i.test(value);
}
