import { isFields } from "../../lib/json.ts";

type Fields = Readonly<Record<string, unknown>>;

const MAX_ANNOTATIONS = 1_000;

/** Members that give the position of a passage, by kind of document. */
const POSITION_MEMBERS = [
  "document_index",
  "start_char_index",
  "end_char_index",
  "start_page_number",
  "end_page_number",
  "start_block_index",
  "end_block_index",
] as const;

/**
 * Returns the citations of a text block as annotations in OpenAI's form. A web search result becomes a
 * `url_citation`, a document of the request a `file_citation`
 * (https://platform.claude.com/docs/en/build-with-claude/citations).
 *
 * @param start offset at which the block begins in the answer's text, in UTF-16 code units
 * @param end offset at which it ends
 */
export function annotationsOf(citations: unknown, start: number, end: number): Fields[] {
  if (!Array.isArray(citations)) return [];
  const position = { start_index: start, end_index: end };
  return citations.slice(0, MAX_ANNOTATIONS).flatMap((citation): Fields[] => {
    if (!isFields(citation)) return [];
    const annotation = annotationOf(citation, position);
    return annotation === undefined ? [] : [annotation];
  });
}

function annotationOf(citation: Fields, position: Fields): Fields | undefined {
  const { type, url = citation.source, title, cited_text: content } = citation;
  const quoted = typeof content === "string" ? { content } : {};
  if (type === "web_search_result_location" || type === "search_result_location") {
    if (typeof url !== "string") return undefined;
    const name = typeof title === "string" ? title : "";
    return { type: "url_citation", url_citation: { url, title: name, ...quoted, ...position } };
  }
  const { document_title: filename, document_index: index } = citation;
  if (typeof index !== "number") return undefined;
  const positions = POSITION_MEMBERS.flatMap((name) => {
    const value = citation[name];
    return typeof value === "number" ? [[name, value] as const] : [];
  });
  const nameMember = typeof filename === "string" ? { filename } : {};
  const file = { ...nameMember, ...Object.fromEntries(positions), ...quoted, ...position };
  return { type: "file_citation", file_citation: file };
}
