import { pageText, writeHtmlText } from "./markup-text.ts";
import { writeOfficeText } from "./office-text.ts";
import { DocumentFault, TextSink } from "./text-sink.ts";

const ZIP = [0x50, 0x4b, 0x03, 0x04];
/** First bytes of Office files from before 2007, and of later ones with a password (MS-CFB). */
const COMPOUND = [0xd0, 0xcf, 0x11, 0xe0];
/** The bytes in which the head of a PDF can begin (ISO 32000-1, annex H.3.4.1). */
const PDF_HEAD_BYTES = 1_024;

/**
 * Returns the text of a file: PDF, docx, pptx, xlsx, HTML, or plain text (txt, Markdown, CSV, JSON, source code).
 * The first bytes decide the format. Rejects with DocumentFault if the format is not supported, or if the file is
 * damaged, too large or without text. A hostile file can take any time and memory.
 *
 * @param isHtml true if the file's name and type are HTML @param isPage for HTML: return only the main content of
 * the page
 */
export async function documentText(
  bytes: Uint8Array,
  isHtml: boolean,
  isPage = false,
): Promise<string> {
  const sink = new TextSink();
  if (beginsWith(bytes, ZIP)) writeOfficeText(bytes, sink);
  else if (beginsWith(bytes, COMPOUND)) throw oldOffice();
  else if (isPdf(bytes)) await writePdfText(bytes, sink);
  else {
    const text = plainText(bytes);
    if (isHtml || /^\s*<(?:!doctype html|html)[\s>]/i.test(text.slice(0, 1_000))) {
      if (isPage) sink.write(pageText(text));
      else writeHtmlText(text, sink);
    } else sink.write(text);
  }
  const { text } = sink;
  if (text === "") throw new DocumentFault("invalid_file", "The file holds no text.");
  return text;
}

function beginsWith(bytes: Uint8Array, head: readonly number[]): boolean {
  return head.every((byte, at) => bytes[at] === byte);
}

function isPdf(bytes: Uint8Array): boolean {
  return Buffer.from(
    bytes.buffer,
    bytes.byteOffset,
    Math.min(bytes.length, PDF_HEAD_BYTES),
  ).includes("%PDF-");
}

function oldOffice(): DocumentFault {
  return new DocumentFault(
    "unsupported_file",
    "The file is of an Office format before 2007, or protected by a password.",
  );
}

/**
 * Decodes UTF-8, UTF-16 with a byte order mark, or otherwise windows-1252. Throws DocumentFault for other bytes.
 */
function plainText(bytes: Uint8Array): string {
  const encoding =
    bytes[0] === 0xff && bytes[1] === 0xfe
      ? "utf-16le"
      : bytes[0] === 0xfe && bytes[1] === 0xff
        ? "utf-16be"
        : "utf-8";
  if (encoding === "utf-8" && bytes.includes(0)) throw notText();
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    if (encoding !== "utf-8" || hasControls(bytes)) throw notText();
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** Returns true if there are control bytes, which single-byte text does not have. */
function hasControls(bytes: Uint8Array): boolean {
  return bytes.some(
    (byte) => byte < 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0c && byte !== 0x0d,
  );
}

function notText(): DocumentFault {
  return new DocumentFault("unsupported_file", "The file is neither text nor a known document.");
}

/** Writes the pages one after another, so that only one page is in memory. */
async function writePdfText(bytes: Uint8Array, sink: TextSink): Promise<void> {
  // Loaded here because it takes 100 ms, and most files do not need it.
  const { getDocumentProxy } = await import("unpdf");
  try {
    const document = await getDocumentProxy(bytes, { verbosity: 0 });
    for (let number = 1; number <= document.numPages; number++) {
      const page = await document.getPage(number);
      const { items } = await page.getTextContent();
      for (const item of items) {
        if ("str" in item) sink.write(item.hasEOL ? `${item.str}\n` : item.str);
      }
      sink.write("\n\n");
      page.cleanup();
    }
  } catch (error) {
    if (error instanceof DocumentFault) throw error;
    const isLocked = error instanceof Error && error.name === "PasswordException";
    const what = isLocked ? "is protected by a password" : "is damaged";
    throw new DocumentFault("invalid_file", `The PDF ${what}.`);
  }
}
