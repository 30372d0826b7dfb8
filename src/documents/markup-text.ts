import { Parser, type ParserOptions } from "htmlparser2";
import { DocumentFault, TextSink } from "./text-sink.ts";

/** Elements whose text is not displayed. */
const UNSHOWN = new Set(["script", "style", "noscript", "template", "svg", "object", "iframe"]);
/** Elements that begin and end a line. */
const BLOCKS = new Set(
  (
    "address article aside blockquote body br caption dd div dl dt fieldset figcaption figure footer " +
    "form h1 h2 h3 h4 h5 h6 head header hr html legend li main nav ol option p pre section select " +
    "summary table tbody tfoot thead title tr ul"
  ).split(" "),
);
const CELLS = new Set(["td", "th"]);

/** Elements around the main content of a page. */
const SURROUNDINGS = new Set([...UNSHOWN, "nav", "header", "footer", "aside", "form", "dialog"]);
/** Elements that contain the main content of a page. */
const SUBJECT = new Set(["main", "article"]);
/**
 * Shortest main content. A shorter one does not count: scripts fill such a page, or it uses the elements
 * differently.
 */
const MIN_SUBJECT_CHARACTERS = 200;

/**
 * Deepest nesting of elements. Browsers flatten deeper ones, and closing one here takes time proportional to the
 * depth.
 */
const MAX_DEPTH = 1_024;

/** Returns the main content of a page without menus and similar parts, as far as its elements mark them. */
export function pageText(html: string): string {
  for (const [unshown, within] of [
    [SURROUNDINGS, SUBJECT],
    [SURROUNDINGS, undefined],
  ] as const) {
    const sink = new TextSink();
    writeHtmlText(html, sink, unshown, within);
    const { text } = sink;
    if (text.length >= MIN_SUBJECT_CHARACTERS) return text;
  }
  const whole = new TextSink();
  writeHtmlText(html, whole);
  return whole.text;
}

/**
 * Writes the text that a browser displays, with a line for each block.
 *
 * @param within only text inside one of these elements is written
 */
export function writeHtmlText(
  html: string,
  sink: TextSink,
  notShown: ReadonlySet<string> = UNSHOWN,
  within?: ReadonlySet<string>,
): void {
  let unshown = 0;
  let preformatted = 0;
  let inside = within === undefined ? 1 : 0;
  const depth = new Depth();
  const parser = new Parser({
    onopentagname(name) {
      depth.enter();
      if (within?.has(name)) inside += 1;
      if (notShown.has(name)) unshown += 1;
      else if (name === "pre" || name === "textarea") preformatted += 1;
      if (BLOCKS.has(name)) sink.write("\n");
    },
    ontext(text) {
      if (unshown === 0 && inside > 0)
        sink.write(preformatted > 0 ? text : text.replace(/\s+/g, " "));
    },
    onclosetag(name) {
      depth.leave();
      if (within?.has(name)) inside -= 1;
      if (notShown.has(name)) unshown -= 1;
      else if (name === "pre" || name === "textarea") preformatted -= 1;
      if (BLOCKS.has(name)) sink.write("\n");
      else if (CELLS.has(name)) sink.write("\t");
    },
  });
  parser.end(html);
}

/** Counts the open elements. */
class Depth {
  #elements = 0;

  /** Counts an opened element. Throws DocumentFault if too many elements are open. */
  enter(): void {
    if (++this.#elements <= MAX_DEPTH) return;
    throw new DocumentFault(
      "invalid_file",
      `The document has elements nested beyond ${MAX_DEPTH} levels.`,
    );
  }

  leave(): void {
    this.#elements -= 1;
  }
}

export interface XmlHandler {
  /** @param attributes by their names as written, including prefixes */
  open?(name: string, attributes: Readonly<Record<string, string>>): void;
  text?(text: string): void;
  close?(name: string): void;
}

const XML: ParserOptions = { xmlMode: true };

/**
 * Parses XML as far as it is well-formed. Entities of a document type are not expanded. Throws DocumentFault if
 * elements are nested too deeply.
 */
export function readXml(xml: string, handler: XmlHandler): void {
  const depth = new Depth();
  const parser = new Parser(
    {
      onopentagname: () => depth.enter(),
      onopentag: (name, attributes) => handler.open?.(name, attributes),
      ontext: (text) => handler.text?.(text),
      onclosetag: (name) => {
        depth.leave();
        handler.close?.(name);
      },
    },
    XML,
  );
  parser.end(xml);
}
