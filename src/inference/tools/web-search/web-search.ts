import type { PageReader } from "./page-reader.ts";
import type { SearchBackend } from "./search-backend.ts";
import type { SearchOptions } from "./search-options.ts";

interface WebSearchDependencies {
  readonly backend: Pick<SearchBackend, "find" | "priceFemto">;
  readonly pages: Pick<PageReader, "textOf">;
  readonly pagesTimeoutMs?: number;
  onError(error: unknown, requestId: string): void;
}

/** The request that runs a search. */
export interface SearchCaller {
  readonly organizationId: string;
  readonly requestId: string;
  readonly signal: AbortSignal;
}

/** A result with the needed part of its page. */
export interface SearchResult {
  readonly url: string;
  readonly title: string;
  readonly text: string;
}

const PAGES_TIMEOUT_MS = 10_000;
const MAX_TITLE_CHARACTERS = 300;
/** Maximum JSON bytes of a result besides its text. A result with a longer address is left out. */
const MAX_BYTES_AROUND_TEXT = 1_500;
/**
 * Minimum characters of a page. A shorter page is usually a notice instead of the content that the backend
 * found.
 */
const MIN_PAGE_CHARACTERS = 200;

/** Searches the web, and reads the pages that the search finds. */
export class WebSearch {
  readonly #dependencies: WebSearchDependencies;

  constructor(dependencies: WebSearchDependencies) {
    this.#dependencies = dependencies;
  }

  /** Price of one search before the fee. */
  get priceFemto(): bigint {
    return this.#dependencies.backend.priceFemto;
  }

  /**
   * Returns the results, best first, with the beginnings of their pages. If a page cannot be loaded in time,
   * the result has the backend's snippet. Rejects with SearchFailed, and with the signal's reason.
   */
  async search(
    query: string,
    options: SearchOptions,
    { organizationId, requestId, signal }: SearchCaller,
  ): Promise<SearchResult[]> {
    const { backend, onError, pages, pagesTimeoutMs = PAGES_TIMEOUT_MS } = this.#dependencies;
    const pagesFound = await backend.find(query, options, signal).catch((error: unknown) => {
      if (!signal.aborted) onError(error, requestId);
      throw error;
    });
    const { maxCharacters } = options;
    const owner = organizationId;
    const limited = AbortSignal.any([signal, AbortSignal.timeout(pagesTimeoutMs)]);
    const results = await Promise.all(
      pagesFound.map(async ({ url, title, snippet, text }) => {
        // Many pages reject programs, and some cannot be read. The search continues without them.
        const page =
          text ?? (await pages.textOf({ owner, url, maxCharacters }, limited).catch(() => ""));
        const isThin = page.length < MIN_PAGE_CHARACTERS && page.length < snippet.length;
        const shown = beginning(isThin ? snippet : page, maxCharacters);
        return { url, title: beginning(title, MAX_TITLE_CHARACTERS), text: shown };
      }),
    );
    signal.throwIfAborted();
    const mostBytes = maxResultBytes(options);
    return results.filter((result) => jsonBytes(result) <= mostBytes);
  }
}

/** Returns the maximum JSON bytes of one result. */
export function maxResultBytes({ maxCharacters }: SearchOptions): number {
  return maxCharacters + MAX_BYTES_AROUND_TEXT;
}

/**
 * Returns the beginning of the visible text: at most `maxCharacters` characters, and at most as many bytes of
 * JSON.
 */
function beginning(text: string, maxCharacters: number): string {
  let cut = visible(text.slice(0, maxCharacters)).trim();
  for (;;) {
    const bytes = jsonBytes(cut) - QUOTES;
    if (bytes <= maxCharacters) return cut;
    cut = cut
      .slice(0, Math.floor((cut.length * maxCharacters) / bytes))
      .toWellFormed()
      .trim();
  }
}

const QUOTES = 2;

function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/** Characters that readers do not see but models do: tags (U+E0000), and characters that reorder or hide text. */
const HIDDEN = /[\u{e0000}-\u{e007f}\u200b\u2028-\u202e\u2060-\u2069\ufeff]/gu;

function visible(text: string): string {
  return text.toWellFormed().replace(HIDDEN, "");
}
