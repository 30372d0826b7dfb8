import { strToU8, zipSync } from "fflate";

/** A PDF with a page for each text, in Helvetica. */
export function pdfOf(pages: readonly string[]): Uint8Array {
  const kids = pages.map((_, page) => `${4 + 2 * page} 0 R`).join(" ");
  const objects = [
    "1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj",
    `2 0 obj\n<< /Type /Pages /Count ${pages.length} /Kids [${kids}] >>\nendobj`,
    "3 0 obj\n<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>\nendobj",
    ...pages.flatMap((text, page) => {
      const [id, content] = [4 + 2 * page, `BT /F1 12 Tf 50 700 Td (${text}) Tj ET`];
      return [
        `${id} 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${id + 1} 0 R /Resources << /Font << /F1 3 0 R >> >> >>\nendobj`,
        `${id + 1} 0 obj\n<< /Length ${content.length} >>\nstream\n${content}\nendstream\nendobj`,
      ];
    }),
  ];
  return strToU8(`%PDF-1.4\n${objects.join("\n")}\ntrailer\n<< /Root 1 0 R >>\n`);
}

export function docxOf(body: string): Uint8Array {
  return zipOf({ "word/document.xml": `<w:document><w:body>${body}</w:body></w:document>` });
}

/** A presentation with slides of these numbers. */
export function pptxOf(slides: Readonly<Record<number, string>>): Uint8Array {
  const parts = Object.entries(slides).map(([number, text]) => [
    `ppt/slides/slide${number}.xml`,
    `<p:sld><a:p><a:r><a:t>${text}</a:t></a:r></a:p></p:sld>`,
  ]);
  return zipOf({ "ppt/presentation.xml": "<p:presentation/>", ...Object.fromEntries(parts) });
}

/** A workbook of one sheet. Style 1 is a date. */
export function xlsxOf(rows: string, strings: readonly string[]): Uint8Array {
  return zipOf({
    "xl/workbook.xml":
      '<workbook><sheets><sheet name="Prices" sheetId="1" r:id="r7"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels":
      '<Relationships><Relationship Id="r7" Target="worksheets/sheet3.xml"/></Relationships>',
    "xl/styles.xml":
      '<styleSheet><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
    "xl/sharedStrings.xml": `<sst>${strings.map((text) => `<si><t>${text}</t></si>`).join("")}</sst>`,
    "xl/worksheets/sheet3.xml": `<worksheet><sheetData>${rows}</sheetData></worksheet>`,
  });
}

export function zipOf(parts: Readonly<Record<string, string>>): Uint8Array {
  return zipSync(
    Object.fromEntries(Object.entries(parts).map(([name, text]) => [name, strToU8(text)])),
  );
}
