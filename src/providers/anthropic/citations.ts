import { isFields } from "../../lib/json.ts";

type Fields = Readonly<Record<string, unknown>>;

const MAX_ANNOTATIONS = 1_000;

/** Members that say where in a document a passage stands, by the kind of the document. */
const PLACES = [
  "document_index",
  "start_char_index",
  "end_char_index",
  "start_page_number",
  "end_page_number",
  "start_block_index",
  "end_block_index",
] as const;

/**
 * The citations of a block of text as annotations, in OpenAI's form: `url_citation` for what was found on the
 * web, `file_citation` for a document of the request
 * (https://platform.claude.com/docs/en/build-with-claude/citations).
 *
 * @param start where the block begins in the text of the answer, in UTF-16 code units
 * @param end where it ends
 */
export function annotationsOf(citations: unknown, start: number, end: number): Fields[] {
  if (!Array.isArray(citations)) return [];
  const place = { start_index: start, end_index: end };
  return citations.slice(0, MAX_ANNOTATIONS).flatMap((one): Fields[] => {
    if (!isFields(one)) return [];
    const annotation = annotationOf(one, place);
    return annotation === undefined ? [] : [annotation];
  });
}

function annotationOf(citation: Fields, place: Fields): Fields | undefined {
  const { type, url = citation.source, title, cited_text: content } = citation;
  const said = typeof content === "string" ? { content } : {};
  if (type === "web_search_result_location" || type === "search_result_location") {
    if (typeof url !== "string") return undefined;
    const name = typeof title === "string" ? title : "";
    return { type: "url_citation", url_citation: { url, title: name, ...said, ...place } };
  }
  const { document_title: filename, document_index: index } = citation;
  if (typeof index !== "number") return undefined;
  const where = PLACES.flatMap((name) => {
    const value = citation[name];
    return typeof value === "number" ? [[name, value] as const] : [];
  });
  const named = typeof filename === "string" ? { filename } : {};
  const file = { ...named, ...Object.fromEntries(where), ...said, ...place };
  return { type: "file_citation", file_citation: file };
}
