import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { type NanoUsd, usdText } from "../lib/money.ts";
import type { RequestContext } from "./route.ts";

/** An amount of a cell, which is written as a plain decimal in USD. */
interface Amount {
  readonly nanoUsd: NanoUsd;
}

/** Null is an empty cell. Texts are guarded; numbers and amounts are not, so that -1.5 stays a number. */
export type CsvCell = string | number | boolean | null | Amount;
export type CsvRow = readonly CsvCell[];

/** A spreadsheet program would run a text with this first character as a formula. */
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
const NEEDS_QUOTES = /[",\r\n]/;

/** Returns a line by RFC 4180. Texts that begin as a formula get a leading apostrophe. */
export function csvLine(row: CsvRow): string {
  return `${row.map(cellText).join(",")}\r\n`;
}

function cellText(cell: CsvCell): string {
  if (cell === null) return "";
  if (typeof cell === "object") return usdText(cell.nanoUsd);
  if (typeof cell !== "string") return String(cell);
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvHeaders(filename: string): Record<string, string> {
  return {
    "content-type": "text/csv; charset=utf-8",
    "content-disposition": `attachment; filename="${filename}"`,
    "x-content-type-options": "nosniff",
  };
}

/** Returns a short CSV file, whose first row is the header. */
export function csvResponse(
  filename: string,
  rows: readonly CsvRow[],
  headers: Readonly<Record<string, string>> = {},
): Response {
  const text = rows.map(csvLine).join("");
  return new Response(text, { headers: { ...csvHeaders(filename), ...headers } });
}

/** A long CSV file, which is read and sent page by page. */
export interface CsvExport {
  readonly filename: string;
  readonly header: readonly string[];
  /** Yields the rows of one page after the other. Reads a page only when the client has received the one before. */
  pages(): AsyncIterator<readonly CsvRow[]>;
}

/** Most exports of an organization, and of all organizations, that one process sends at a time. */
const MAX_OF_ORGANIZATION = 2;
const MAX_OF_ALL = 20;
/** Longest time of an export, whose client may read slowly. */
const MAX_EXPORT_MS = 600_000;
/** Rows of one export. A longer one is rejected or cut off. */
export const MAX_EXPORT_ROWS = 1_000_000;
const RETRY_SECONDS = 10;

/** Sends exports. Bounds their number, their rows and their time. */
export class CsvExports {
  readonly #clock: Clock;
  readonly #running = new Map<string, number>();
  #total = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Sends an export. Throws 429 if the organization has too many running exports, or all organizations together.
   * Closes the connection, without the end of the body, if a page cannot be read, the export has too many rows or
   * takes too long. So a file that ends properly is complete.
   */
  async send(context: RequestContext, file: CsvExport): Promise<Response> {
    const { lifetime, caller, operator, request } = context;
    // Exports of an operator who views an organization take none of the organization's room.
    const release = this.#begin(operator?.id ?? caller.key.organizationId);
    try {
      const pages = file.pages();
      // The first page is read before the answer begins, so that its errors have a status.
      const first = await pages.next();
      lifetime.isDeferred = true;
      const body = this.#stream(file, pages, first, request.signal, () => {
        release();
        // The stream can end before the response is returned. The pipeline then must not wait for it.
        lifetime.isDeferred = false;
        lifetime.finish?.();
      });
      return new Response(body, { headers: csvHeaders(file.filename) });
    } catch (error) {
      release();
      throw error;
    }
  }

  #begin(owner: string): () => void {
    const running = this.#running.get(owner) ?? 0;
    if (running >= MAX_OF_ORGANIZATION || this.#total >= MAX_OF_ALL) {
      const message = "Too many exports are running. Try again when one has ended.";
      throw new GatewayError("rate_limit_exceeded", message, { retryAfterSeconds: RETRY_SECONDS });
    }
    this.#running.set(owner, running + 1);
    this.#total += 1;
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      this.#total -= 1;
      const left = this.#running.get(owner)! - 1;
      if (left === 0) this.#running.delete(owner);
      else this.#running.set(owner, left);
    };
  }

  /** Calls `onOver` once, when the stream ends, fails or is cancelled. */
  #stream(
    { header }: CsvExport,
    pages: AsyncIterator<readonly CsvRow[]>,
    first: IteratorResult<readonly CsvRow[]>,
    signal: AbortSignal,
    onOver: () => void,
  ): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder();
    let text = csvLine(header);
    let next: IteratorResult<readonly CsvRow[]> | undefined = first;
    let rows = 0;
    let isOver = false;
    let end: (error?: Error) => void = () => {};
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          const leave = () => end(new Error("The client left during an export."));
          const cancelTimer = this.#clock.after(MAX_EXPORT_MS, () =>
            end(new Error("The export takes too long.")),
          );
          end = (error) => {
            if (isOver) return;
            isOver = true;
            cancelTimer();
            signal.removeEventListener("abort", leave);
            if (error === undefined) controller.close();
            else controller.error(error);
            onOver();
          };
          signal.addEventListener("abort", leave);
          if (signal.aborted) leave();
        },
        async pull(controller) {
          try {
            let page: IteratorResult<readonly CsvRow[]>;
            // A pull must give bytes or end the stream. A page can be empty.
            do {
              page = next ?? (await pages.next());
              next = undefined;
              if (page.done) break;
              rows += page.value.length;
              if (rows > MAX_EXPORT_ROWS) throw new Error("The export has too many rows.");
              for (const row of page.value) text += csvLine(row);
            } while (text === "" && !isOver);
            if (isOver) return;
            if (text !== "") controller.enqueue(encoder.encode(text));
            text = "";
            if (page.done) end();
          } catch (error) {
            end(error instanceof Error ? error : new Error(String(error)));
          }
        },
        cancel: () => end(new Error("The client left during an export.")),
      },
      { highWaterMark: 0 },
    );
  }
}

/** Returns the error for an export that has too many rows. */
export function exportTooLong(): GatewayError {
  const most = MAX_EXPORT_ROWS.toLocaleString("en-US");
  return new GatewayError(
    "invalid_query",
    `An export has at most ${most} rows. Choose a shorter time with start_date and end_date.`,
    { param: "start_date" },
  );
}
