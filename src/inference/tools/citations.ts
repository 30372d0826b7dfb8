import type { ToolSource } from "./tool.ts";

/** Maximum citations of one text. A list of links can name each source many times. */
const MAX_CITATIONS = 200;
/** Maximum number of sources. The text is searched once for each, and the limit keeps the event loop responsive. */
const MAX_SOURCES = 200;
const MAX_SEARCHED_CHARACTERS = 131_072;

interface Citation {
  readonly start: number;
  readonly end: number;
  readonly source: ToolSource;
}

/**
 * Returns annotations in the form of chats for the places at which a text names sources. Indices count
 * characters.
 */
export function citationsIn(answer: string, sources: readonly ToolSource[]): unknown[] {
  const text = answer.slice(0, MAX_SEARCHED_CHARACTERS);
  const citations: Citation[] = [];
  // Several searches can find the same source.
  const byName = new Map(sources.map((source) => [nameOf(source), source]));
  for (const [name, source] of [...byName].slice(-MAX_SOURCES)) {
    if (name === "") continue;
    for (let from = 0; citations.length < MAX_CITATIONS; ) {
      const start = text.indexOf(name, from);
      if (start < 0) break;
      const end = start + name.length;
      if (source.kind === "file") citations.push({ start, end, source });
      else {
        const address = { start, end: text[end] === "/" ? end + 1 : end };
        if (endsAt(text, address.end)) citations.push({ ...linkAround(text, address), source });
      }
      from = end;
    }
  }
  return citations.sort((left, right) => left.start - right.start).map(annotationOf);
}

/**
 * Returns the name of a source in a text. The final slash of an address is removed, because models leave it
 * out.
 */
function nameOf(source: ToolSource): string {
  return source.kind === "url" ? source.url.replace(/\/$/, "") : source.filename;
}

/**
 * Returns the range of the complete Markdown link if the address is the target of one. Otherwise returns the
 * range of the address.
 */
function linkAround(text: string, { start, end }: { start: number; end: number }) {
  const isTarget = text.slice(start - 2, start) === "](" && text[end] === ")";
  const label = isTarget ? text.lastIndexOf("[", start - 2) : -1;
  return label < 0 ? { start, end } : { start: label, end: end + 1 };
}

/** Returns true if the address ends at this position, and is not the beginning of a longer one. */
function endsAt(text: string, end: number): boolean {
  return !/^(?:[\w%&=+~#/@-]|[.?:;,!][\w%&=+~#/@-])/.test(text.slice(end, end + 2));
}

function annotationOf({ start, end, source }: Citation): unknown {
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
