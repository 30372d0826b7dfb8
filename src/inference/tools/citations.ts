import type { ToolSource } from "./tool.ts";

/** Of one text: a list of links may name each source many times. */
const MAX_CITATIONS = 200;
/** A text is searched once for each, as far as that takes no longer than an event loop may be held. */
const MAX_SOURCES = 200;
const MAX_SEARCHED_CHARACTERS = 131_072;

interface Place {
  readonly start: number;
  readonly end: number;
  readonly source: ToolSource;
}

/** Where a text names what tools have found, as annotations in the form of chats: places count characters. */
export function citationsIn(answer: string, sources: readonly ToolSource[]): unknown[] {
  const text = answer.slice(0, MAX_SEARCHED_CHARACTERS);
  const places: Place[] = [];
  // Several searches may have found the same.
  const found = new Map(sources.map((source) => [nameOf(source), source]));
  for (const [name, source] of [...found].slice(-MAX_SOURCES)) {
    if (name === "") continue;
    for (let from = 0; places.length < MAX_CITATIONS; ) {
      const start = text.indexOf(name, from);
      if (start < 0) break;
      const end = start + name.length;
      if (source.kind === "file") places.push({ start, end, source });
      else {
        const address = { start, end: text[end] === "/" ? end + 1 : end };
        if (endsThere(text, address.end)) places.push({ ...linkAround(text, address), source });
      }
      from = end;
    }
  }
  return places.sort((one, other) => one.start - other.start).map(annotationOf);
}

/** Models leave the slash out that the address of a site ends with. */
function nameOf(source: ToolSource): string {
  return source.kind === "url" ? source.url.replace(/\/$/, "") : source.filename;
}

/** The whole link of Markdown where the address is the target of one. */
function linkAround(text: string, { start, end }: { start: number; end: number }) {
  const isTarget = text.slice(start - 2, start) === "](" && text[end] === ")";
  const label = isTarget ? text.lastIndexOf("[", start - 2) : -1;
  return label < 0 ? { start, end } : { start: label, end: end + 1 };
}

/** Whether an address is the whole of what stands there, and not the beginning of a longer one. */
function endsThere(text: string, end: number): boolean {
  return !/^(?:[\w%&=+~#/@-]|[.?:;,!][\w%&=+~#/@-])/.test(text.slice(end, end + 2));
}

function annotationOf({ start, end, source }: Place): unknown {
  if (source.kind === "url") {
    const { url, title } = source;
    return {
      type: "url_citation",
      url_citation: { url, title, start_index: start, end_index: end },
    };
  }
  const { fileId, filename } = source;
  return { type: "file_citation", file_citation: { file_id: fileId, filename, index: end } };
}
