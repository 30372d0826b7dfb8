import type { Color, PDFDocument, PDFFont, PDFPage } from "@cantoo/pdf-lib";
import { type NanoUsd, usdText } from "../../lib/money.ts";
import { TRANSACTION_KINDS } from "../../lib/transaction-kinds.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { yieldToEventLoop } from "../../lib/yield-to-event-loop.ts";
import { type Movement, modelTitle, monthSpan, type Statement } from "./statements.ts";

/** A4, in points. */
const PAGE = { width: 595.28, height: 841.89 };
const MARGIN = 56;
const LINE = 17;
const TEXT_SIZE = 9.5;
type Ink = "text" | "quiet" | "rule";
/** Models that the file lists. The sum of all others is one more line. */
const MAX_MODELS = 60;
/** Lines between two yields to the event loop. */
const LINES_A_TURN = 10;

interface Cell {
  readonly text: string;
  /** The left edge, or the right edge of a number. */
  readonly x: number;
  readonly width: number;
  readonly isNumber?: boolean;
}

const RIGHT = PAGE.width - MARGIN;
const WIDE = { x: MARGIN, width: 250 };
const SECOND = { x: RIGHT - 215, width: 80, isNumber: true };
const THIRD = { x: RIGHT - 110, width: 100, isNumber: true };
const LAST = { x: RIGHT, width: 105, isNumber: true };

/** Returns a statement as a PDF file of one page, or of a few if it has many models. */
export async function statementPdf(statement: Statement): Promise<Uint8Array<ArrayBuffer>> {
  // Loaded at the first use: most processes write no statement.
  const { PDFDocument, rgb, StandardFonts } = await import("@cantoo/pdf-lib");
  const file = await PDFDocument.create();
  const sheet = new Sheet(file, {
    plain: await file.embedFont(StandardFonts.Helvetica),
    bold: await file.embedFont(StandardFonts.HelveticaBold),
    colors: {
      text: rgb(0.1, 0.11, 0.13),
      quiet: rgb(0.42, 0.44, 0.48),
      rule: rgb(0.86, 0.87, 0.89),
    },
  });
  const { month, organization, isFinal, readAtMs } = statement;
  file.setTitle(`Statement ${month}`);
  file.setCreationDate(new Date(readAtMs));
  file.setModificationDate(new Date(readAtMs));
  sheet.heading(`Statement ${month}`);
  const { firstDay, lastDay } = monthSpan(month);
  sheet.fact("Organization", organization.name);
  sheet.fact("Id", organization.id);
  sheet.fact("Period", `${firstDay} to ${lastDay}, UTC`);
  sheet.fact("Amounts", "USD. Charges are negative.");
  if (!isFinal) {
    sheet.fact("State", `Not final: figures until ${isoTime(readAtMs).slice(0, 16)}Z`);
  }
  balances(sheet, statement);
  await models(sheet, statement);
  return file.save();
}

function balances(sheet: Sheet, statement: Statement): void {
  const { movements, opening, closing, fees } = statement;
  sheet.section("Balance");
  sheet.row(
    [
      { text: "Movement", ...WIDE },
      { text: "Transactions", ...THIRD },
      { text: "Amount (USD)", ...LAST },
    ],
    "head",
  );
  sheet.row(
    [
      { text: "Opening balance", ...WIDE },
      { text: usdText(opening), ...LAST },
    ],
    "bold",
  );
  for (const movement of movements) {
    sheet.row(movementCells(movement));
    if (movement.kind === "charge" && fees !== 0n) {
      sheet.row([
        { text: "Plan fees of these charges", ...WIDE },
        { text: usdText(fees), ...LAST },
      ]);
    }
  }
  sheet.row(
    [
      { text: "Closing balance", ...WIDE },
      { text: usdText(closing), ...LAST },
    ],
    "bold",
  );
}

function movementCells({ kind, transactions, amountNano }: Movement): Cell[] {
  return [
    { text: TRANSACTION_KINDS[kind].title, ...WIDE },
    { text: String(transactions), ...THIRD },
    { text: usdText(amountNano), ...LAST },
  ];
}

async function models(sheet: Sheet, { models: all }: Statement): Promise<void> {
  if (all.length === 0) return;
  sheet.section("Charges by model");
  sheet.row(
    [
      { text: "Model", ...WIDE },
      { text: "Charges", ...SECOND },
      { text: "Usage (USD)", ...THIRD },
      { text: "Fees (USD)", ...LAST },
    ],
    "head",
  );
  const line = (text: string, count: bigint, usage: NanoUsd, fees: NanoUsd) =>
    sheet.row([
      { text, ...WIDE },
      { text: String(count), ...SECOND },
      { text: usdText(usage), ...THIRD },
      { text: usdText(fees), ...LAST },
    ]);
  for (const [index, one] of all.slice(0, MAX_MODELS).entries()) {
    if (index % LINES_A_TURN === 0) await yieldToEventLoop();
    line(modelTitle(one), one.transactions, one.usageNano, one.feesNano);
  }
  const rest = all.slice(MAX_MODELS);
  if (rest.length === 0) return;
  const sum = (of: (one: (typeof rest)[number]) => bigint) =>
    rest.reduce((total, one) => total + of(one), 0n);
  line(
    "Other models",
    sum(({ transactions }) => transactions),
    sum(({ usageNano }) => usageNano),
    sum(({ feesNano }) => feesNano),
  );
}

interface Style {
  readonly plain: PDFFont;
  readonly bold: PDFFont;
  readonly colors: Readonly<Record<Ink, Color>>;
}

/** Writes lines from the top to the bottom, on as many pages as they need. */
class Sheet {
  readonly #file: PDFDocument;
  readonly #style: Style;
  readonly #characters: ReadonlySet<number>;
  #page: PDFPage;
  #y = PAGE.height - MARGIN;

  constructor(file: PDFDocument, style: Style) {
    this.#file = file;
    this.#style = style;
    this.#characters = new Set(style.plain.getCharacterSet());
    this.#page = file.addPage([PAGE.width, PAGE.height]);
  }

  heading(text: string): void {
    this.#write({ text, x: MARGIN, width: RIGHT - MARGIN }, this.#style.bold, 20, "text");
    this.#y -= 2 * LINE;
  }

  fact(name: string, value: string): void {
    this.#write({ text: name, x: MARGIN, width: 90 }, this.#style.plain, TEXT_SIZE, "quiet");
    const cell = { text: value, x: MARGIN + 90, width: RIGHT - MARGIN - 90 };
    this.#write(cell, this.#style.plain, TEXT_SIZE, "text");
    this.#next();
  }

  section(title: string): void {
    if (this.#y < MARGIN + 5 * LINE) this.#turn();
    this.#y -= LINE;
    this.#write({ text: title, x: MARGIN, width: RIGHT - MARGIN }, this.#style.bold, 12, "text");
    this.#y -= LINE * 1.2;
  }

  row(cells: readonly Cell[], kind: "head" | "bold" | "plain" = "plain"): void {
    const font = kind === "bold" ? this.#style.bold : this.#style.plain;
    for (const cell of cells)
      this.#write(cell, font, TEXT_SIZE, kind === "head" ? "quiet" : "text");
    const y = this.#y - 5.5;
    this.#page.drawLine({
      start: { x: MARGIN, y },
      end: { x: RIGHT, y },
      thickness: 0.6,
      color: this.#style.colors.rule,
    });
    this.#next();
  }

  #next(): void {
    this.#y -= LINE;
    if (this.#y < MARGIN) this.#turn();
  }

  #turn(): void {
    this.#page = this.#file.addPage([PAGE.width, PAGE.height]);
    this.#y = PAGE.height - MARGIN;
  }

  #write(cell: Cell, font: PDFFont, size: number, ink: Ink): void {
    const text = fitted(encodable(cell.text, this.#characters), font, size, cell.width);
    const x = cell.isNumber === true ? cell.x - font.widthOfTextAtSize(text, size) : cell.x;
    this.#page.drawText(text, { x, y: this.#y, size, font, color: this.#style.colors[ink] });
  }
}

/** Longest text that is measured. */
const MAX_CHARACTERS = 300;
const ELLIPSIS = "…";

/** Shortens a text to the width, with an ellipsis. */
function fitted(text: string, font: PDFFont, size: number, width: number): string {
  if (font.widthOfTextAtSize(text, size) <= width) return text;
  let characters = [...text].length;
  let short = text;
  while (characters > 0 && font.widthOfTextAtSize(short, size) > width) {
    characters -= 1;
    short = [...text].slice(0, characters).join("") + ELLIPSIS;
  }
  return short;
}

/**
 * Returns the text in the characters of the standard fonts, which are those of Western Europe. Others are replaced by
 * their letter without the accent, or by a question mark.
 */
function encodable(text: string, characters: ReadonlySet<number>): string {
  const has = (character: string) => characters.has(character.codePointAt(0)!);
  return [...text.normalize("NFC")]
    .slice(0, MAX_CHARACTERS)
    .map((character) => {
      if (/\p{Cc}|\p{Zl}|\p{Zp}/u.test(character)) return " ";
      if (has(character)) return character;
      const [plain = "?"] = character.normalize("NFKD");
      return has(plain) ? plain : "?";
    })
    .join("");
}
