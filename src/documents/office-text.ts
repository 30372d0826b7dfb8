import { type UnzipFileInfo, unzipSync } from "fflate";
import { readXml } from "./markup-text.ts";
import { DocumentFault, type TextSink } from "./text-sink.ts";

/** Most expanded bytes of the parts that are read. A part is never expanded beyond its stated size. */
const MAX_EXPANDED_BYTES = 134_217_728;
const MAX_PARTS = 20_000;

const WANTED =
  /^(?:word\/(?:document|footnotes|endnotes)\.xml|ppt\/(?:presentation\.xml|slides\/slide\d+\.xml|notesSlides\/notesSlide\d+\.xml)|xl\/(?:workbook\.xml|_rels\/workbook\.xml\.rels|sharedStrings\.xml|styles\.xml|worksheets\/[^/]+\.xml))$/;

type Parts = Readonly<Record<string, Uint8Array>>;

/**
 * Writes the text of a docx, pptx or xlsx file (ECMA-376). Throws DocumentFault for any other ZIP archive, and for
 * a damaged or too large file.
 */
export function writeOfficeText(bytes: Uint8Array, sink: TextSink): void {
  const parts = partsOf(bytes);
  if ("word/document.xml" in parts) writeWord(parts, sink);
  else if ("ppt/presentation.xml" in parts) writeSlides(parts, sink);
  else if ("xl/workbook.xml" in parts) writeWorkbook(parts, sink);
  else {
    throw new DocumentFault(
      "unsupported_file",
      "The file is a ZIP archive, and not a docx, pptx or xlsx document.",
    );
  }
}

function partsOf(bytes: Uint8Array): Parts {
  let expanded = 0;
  let count = 0;
  const filter = ({ name, originalSize }: UnzipFileInfo): boolean => {
    if (++count > MAX_PARTS) throw tooLarge();
    if (!WANTED.test(name)) return false;
    expanded += originalSize;
    if (expanded > MAX_EXPANDED_BYTES) throw tooLarge();
    return true;
  };
  try {
    return unzipSync(bytes, { filter });
  } catch (error) {
    if (error instanceof DocumentFault) throw error;
    throw new DocumentFault("invalid_file", "The file is a damaged ZIP archive.");
  }
}

function tooLarge(): DocumentFault {
  const most = MAX_EXPANDED_BYTES / 1_048_576;
  return new DocumentFault(
    "invalid_file",
    `The document takes more than ${most} MB when expanded.`,
  );
}

function textOf(parts: Parts, name: string): string {
  const part = parts[name];
  return part === undefined ? "" : new TextDecoder().decode(part);
}

function writeWord(parts: Parts, sink: TextSink): void {
  for (const name of ["document", "footnotes", "endnotes"]) {
    writeRuns(textOf(parts, `word/${name}.xml`), "w", sink);
  }
}

/** Writes the slides in the order of their numbers, each followed by its notes. */
function writeSlides(parts: Parts, sink: TextSink): void {
  const numbers = Object.keys(parts)
    .flatMap((name) => /^ppt\/slides\/slide(\d+)\.xml$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
  for (const number of numbers) {
    writeRuns(textOf(parts, `ppt/slides/slide${number}.xml`), "a", sink);
    writeRuns(textOf(parts, `ppt/notesSlides/notesSlide${number}.xml`), "a", sink);
    sink.write("\n");
  }
}

/** Writes the text of runs (`t`), with a line for each paragraph (`p`) and a tab after each table cell (`tc`). */
function writeRuns(xml: string, prefix: "w" | "a", sink: TextSink): void {
  const [run, paragraph, cell] = [`${prefix}:t`, `${prefix}:p`, `${prefix}:tc`];
  let isRun = false;
  readXml(xml, {
    open(name) {
      if (name === run) isRun = true;
      else if (name === `${prefix}:tab`) sink.write("\t");
      else if (name === `${prefix}:br` || name === `${prefix}:cr`) sink.write("\n");
    },
    text(text) {
      if (isRun) sink.write(text);
    },
    close(name) {
      if (name === run) isRun = false;
      else if (name === paragraph) sink.write("\n");
      else if (name === cell) sink.write("\t");
    },
  });
}

/** Writes each sheet after its name, with a line for each row and a tab between cells. */
function writeWorkbook(parts: Parts, sink: TextSink): void {
  const strings = sharedStrings(textOf(parts, "xl/sharedStrings.xml"));
  const isDate = dateStyles(textOf(parts, "xl/styles.xml"));
  for (const { name, part } of sheetsOf(parts)) {
    sink.write(`${name}\n`);
    writeSheet(textOf(parts, part), strings, isDate, sink);
    sink.write("\n");
  }
}

function sheetsOf(parts: Parts): { name: string; part: string }[] {
  const targets = new Map<string, string>();
  readXml(textOf(parts, "xl/_rels/workbook.xml.rels"), {
    open(name, { Id, Target }) {
      if (name !== "Relationship" || Id === undefined || Target === undefined) return;
      targets.set(Id, Target.startsWith("/") ? Target.slice(1) : `xl/${Target}`);
    },
  });
  const sheets: { name: string; part: string }[] = [];
  readXml(textOf(parts, "xl/workbook.xml"), {
    open(name, attributes) {
      const part = targets.get(attributes["r:id"] ?? "");
      if (name === "sheet" && part !== undefined) {
        sheets.push({ name: attributes.name ?? "", part });
      }
    },
  });
  return sheets;
}

function sharedStrings(xml: string): string[] {
  const strings: string[] = [];
  let current: string[] = [];
  let isText = false;
  /** Depth in phonetic elements: readings of Japanese words, which repeat the words. */
  let phonetic = 0;
  readXml(xml, {
    open(name) {
      if (name === "si") current = [];
      else if (name === "rPh") phonetic += 1;
      else if (name === "t") isText = phonetic === 0;
    },
    text(text) {
      if (isText) current.push(text);
    },
    close(name) {
      if (name === "si") strings.push(current.join(""));
      else if (name === "rPh") phonetic -= 1;
      else if (name === "t") isText = false;
    },
  });
  return strings;
}

/**
 * Returns a function that checks whether a cell style is a date: its number format is one of ECMA-376's date
 * formats (18.8.30), or its code contains a year or a day.
 */
function dateStyles(xml: string): (style: number) => boolean {
  const custom = new Set<number>();
  const formats: number[] = [];
  let isCellFormats = false;
  readXml(xml, {
    open(name, attributes) {
      const id = Number(attributes.numFmtId);
      if (name === "cellXfs") isCellFormats = true;
      else if (name === "xf" && isCellFormats) formats.push(id);
      else if (name === "numFmt") {
        const code = (attributes.formatCode ?? "").replace(/"[^"]*"|\[[^\][]*\]|\\./g, "");
        if (/[yd]/i.test(code)) custom.add(id);
      }
    },
    close(name) {
      if (name === "cellXfs") isCellFormats = false;
    },
  });
  const isDate = (id: number): boolean => (id >= 14 && id <= 17) || id === 22 || custom.has(id);
  return (style) => isDate(formats[style] ?? 0);
}

function writeSheet(
  xml: string,
  strings: readonly string[],
  isDate: (style: number) => boolean,
  sink: TextSink,
): void {
  let type = "n";
  let style = 0;
  let value: string | undefined;
  readXml(xml, {
    open(name, attributes) {
      if (name === "c") {
        type = attributes.t ?? "n";
        style = Number(attributes.s ?? 0);
      } else if (name === "v" || name === "t") value = "";
    },
    text(text) {
      if (value !== undefined) value += text;
    },
    close(name) {
      if (name === "row") sink.write("\n");
      else if (name === "c") sink.write("\t");
      if ((name !== "v" && name !== "t") || value === undefined) return;
      if (type === "s") sink.write(strings[Number(value)] ?? "");
      else sink.write(type === "n" && isDate(style) ? dateOf(value) : value);
      value = undefined;
    },
  });
}

const DAY_MS = 86_400_000;
/** Day 0 of serial dates, which count a leap day in 1900 that did not exist. */
const EPOCH_MS = Date.UTC(1899, 11, 30);
const LAST_DAY = 2_958_465;

function dateOf(value: string): string {
  const days = Number(value);
  if (value === "" || !(days >= 0 && days <= LAST_DAY)) return value;
  const [date, time] = new Date(EPOCH_MS + Math.round(days * DAY_MS)).toISOString().split("T");
  return Number.isInteger(days) ? date! : `${date} ${time!.slice(0, 5)}`;
}
