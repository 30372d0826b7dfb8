import { heapStats } from "bun:jsc";
import { afterAll, describe, expect, test } from "bun:test";
import { Extraction } from "../../src/documents/extraction.ts";
import { docxOf, pdfOf, pptxOf, xlsxOf, zipOf } from "../support/documents.ts";

const extraction = new Extraction();
const bounded = new Extraction({ maxMemoryBytes: 200_000_000, maxMs: 60_000 });
const hurried = new Extraction({ maxMemoryBytes: 1_000_000_000, maxMs: 50 });
afterAll(() => {
  for (const one of [extraction, bounded, hurried]) one.close();
});

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

async function chunksOf(
  bytes: Uint8Array,
  { isHtml = false, by = extraction, signal = new AbortController().signal } = {},
): Promise<string[]> {
  const order = { bytes: bytes.length, isHtml, maxTokens: 100, overlapTokens: 20 };
  const content = new Blob([bytes as BlobPart]).stream();
  const texts: string[] = [];
  for await (const { text } of by.chunksOf(content, order, signal)) texts.push(text);
  return texts;
}

describe("the text of", () => {
  const cells =
    '<row><c t="s"><v>0</v></c><c t="s"><v>1</v></c></row><row><c t="inlineStr"><is><t>Kettle</t></is></c><c><v>12.5</v></c><c s="1"><v>46023</v></c></row>';
  test.each([
    ["plain text", utf8("Grüße\r\n\u0000".replace("\u0000", "")), "Grüße"],
    ["UTF-16", new Uint8Array([0xff, 0xfe, 0x48, 0, 0xfc, 0]), "Hü"],
    ["windows-1252", new Uint8Array([0x48, 0xfc]), "Hü"],
    ["JSON", utf8('{"a": ["b"]}'), '{"a": ["b"]}'],
    [
      "HTML",
      utf8(
        "<!doctype html><title>T</title><script>x()</script><p>One &amp;\n two<p>Three<pre>a\n b</pre>",
      ),
      "T\n\nOne & two\n\nThree\n\na\n b",
    ],
    ["PDF", pdfOf(["First page.", "Second page."]), "First page.\n\nSecond page."],
    [
      "docx",
      docxOf(
        "<w:p><w:r><w:t>One</w:t><w:tab/><w:t xml:space='preserve'>two &lt;</w:t></w:r></w:p><w:p><w:del><w:delText>gone</w:delText></w:del><w:t>Three</w:t></w:p>",
      ),
      "One\ttwo <\nThree",
    ],
    ["pptx", pptxOf({ 10: "Last", 2: "Second", 1: "First" }), "First\n\nSecond\n\nLast"],
    ["xlsx", xlsxOf(cells, ["Thing", "Price"]), "Prices\nThing\tPrice\nKettle\t12.5\t2026-01-01"],
  ])("%s is read", async (_, bytes, text) => {
    expect(await chunksOf(bytes)).toEqual([text]);
  });
});

test("chunks hold at most so many tokens, overlap, end with a sentence and leave nothing out", async () => {
  const sentences = Array.from(
    { length: 60 },
    (_, n) => `Sentence ${n} speaks of matter ${n * 7}.`,
  );
  const chunks = await chunksOf(utf8(sentences.join(" ")));
  expect(chunks.length).toBeGreaterThan(5);
  for (const chunk of chunks) expect(chunk).toEndWith(".");
  for (const sentence of sentences) {
    expect(chunks.some((chunk) => chunk.includes(sentence))).toBe(true);
  }
  const [first, second] = chunks as [string, string];
  const shared = sentences.filter((one) => first.includes(one) && second.includes(one));
  expect(shared.length).toBeGreaterThan(0);
  expect(shared.length).toBeLessThan(4);
});

const fault = (code: string, message: string) => ({ name: "DocumentFault", code, message });

describe("a file that has no readable text ends with a fault:", () => {
  test.each([
    ["no bytes", utf8(""), "invalid_file", "The file holds no text."],
    [
      "an image",
      utf8("\u0089PNG\r\n\u001a\n\u0000\u0000"),
      "unsupported_file",
      "The file is neither text nor a known document.",
    ],
    [
      "an old Office file",
      new Uint8Array([0xd0, 0xcf, 0x11, 0xe0]),
      "unsupported_file",
      "The file is of an Office format before 2007, or protected by a password.",
    ],
    [
      "another archive",
      zipOf({ "a.txt": "a" }),
      "unsupported_file",
      "The file is a ZIP archive, and not a docx, pptx or xlsx document.",
    ],
    [
      "half an archive",
      docxOf("<w:t>a</w:t>").subarray(0, 40),
      "invalid_file",
      "The file is a damaged ZIP archive.",
    ],
    ["a broken PDF", utf8("%PDF-1.7 nothing"), "invalid_file", "The PDF is damaged."],
  ])("%s", async (_, bytes, code, message) => {
    await expect(chunksOf(bytes)).rejects.toMatchObject(fault(code, message));
  });
});

describe("a hostile file ends with a fault, and the next one is read:", () => {
  const strings = ["a".repeat(1_000_000)];
  const repeated = `<row>${'<c t="s"><v>0</v></c>'.repeat(10_000)}</row>`;
  test.each([
    [
      "a part that expands to 160 MB",
      zipOf({ "word/document.xml": " ".repeat(160_000_000) }),
      "The document takes more than 128 MB when expanded.",
    ],
    [
      "a string that a sheet repeats",
      xlsxOf(repeated, strings),
      "The file holds more than 16 million characters of text.",
    ],
    [
      "a page of 17 MB",
      utf8("a ".repeat(8_500_000)),
      "The file holds more than 16 million characters of text.",
    ],
  ])("%s", async (_, bytes, message) => {
    await expect(chunksOf(bytes)).rejects.toMatchObject(fault("invalid_file", message));
    expect(await chunksOf(utf8("still here"))).toEqual(["still here"]);
  });

  test("entities of a document type are not expanded", async () => {
    const entities = Array.from({ length: 20 }, (_, n) => `<!ENTITY e${n + 1} "&e${n};&e${n};">`);
    const bomb = `<!DOCTYPE d [<!ENTITY e0 "lol">${entities.join("")}]><w:p><w:t>&e20; end</w:t></w:p>`;
    expect(await chunksOf(zipOf({ "word/document.xml": bomb }))).toEqual(["&e20; end"]);
  });

  test("more memory than its bound", async () => {
    const pages = pdfOf(Array.from({ length: 60_000 }, () => "a"));
    await expect(chunksOf(pages, { by: bounded })).rejects.toMatchObject(
      fault("invalid_file", "Reading the file takes more than 190.73486328125 MB of memory."),
    );
    expect(await chunksOf(utf8("still here"), { by: bounded })).toEqual(["still here"]);
  });

  test("more time than its bound", async () => {
    const long = utf8("Words take their time. ".repeat(400_000));
    await expect(chunksOf(long, { by: hurried })).rejects.toMatchObject(
      fault("invalid_file", "Reading the file takes more than 0.05 seconds."),
    );
  });
});

test("an aborted file rejects with the reason, and the next one is read", async () => {
  const abort = new AbortController();
  const long = utf8("Words take their time. ".repeat(400_000));
  const read = chunksOf(long, { signal: abort.signal });
  abort.abort(new Error("not ours any more"));
  await expect(read).rejects.toThrow("not ours any more");
  expect(await chunksOf(utf8("still here"))).toEqual(["still here"]);
});

test("content that breaks off rejects with its error", async () => {
  const broken = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(utf8("begun"));
      controller.error(new Error("the store is gone"));
    },
  });
  const order = { bytes: 100, isHtml: false, maxTokens: 100, overlapTokens: 0 };
  const chunks = extraction.chunksOf(broken, order, new AbortController().signal);
  await expect(chunks.next()).rejects.toThrow("the store is gone");
});

test("nothing of a file is kept once it is read, however long its process lives", async () => {
  const files = 150;
  const countPromises = () => {
    Bun.gc(true);
    const { Promise: promises = 0, SlimPromiseReaction: reactions = 0 } =
      heapStats().objectTypeCounts;
    return promises + reactions;
  };
  const own = new Extraction();
  try {
    const readAll = async () => {
      for (let n = 0; n < files; n++) await chunksOf(utf8(`File ${n}.`), { by: own });
    };
    await readAll();
    const before = countPromises();
    await readAll();
    expect(countPromises() - before).toBeLessThan(files);
  } finally {
    own.close();
  }
});
