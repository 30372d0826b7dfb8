import type { PageReader } from "./page-reader.ts";
import type { SearchBackend } from "./search-backend.ts";
import type { SearchOptions } from "./search-options.ts";

interface WebSearchDependencies {
  readonly backend: Pick<SearchBackend, "find" | "priceFemto">;
  readonly pages: Pick<PageReader, "textOf">;
  readonly pagesTimeoutMs?: number;
  onError(error: unknown, requestId: string): void;
}

/** The request that a search is part of. */
export interface SearchCaller {
  readonly organizationId: string;
  readonly requestId: string;
  readonly signal: AbortSignal;
}

/** One result with as much of its page as is wanted. */
export interface SearchResult {
  readonly url: string;
  readonly title: string;
  readonly text: string;
}

const PAGES_TIMEOUT_MS = 10_000;
const MAX_TITLE_CHARACTERS = 300;
/** Addresses that take more are left out with their pages. */
const MAX_BYTES_AROUND_TEXT = 1_500;
/** A page with less is mostly a notice in the place of what the backend has seen there. */
const MIN_PAGE_CHARACTERS = 200;

/** Searches the web, and reads the pages that were found. */
export class WebSearch {
  readonly #dependencies: WebSearchDependencies;

  constructor(dependencies: WebSearchDependencies) {
    this.#dependencies = dependencies;
  }

  /** Of one search, before the fee. */
  get priceFemto(): bigint {
    return this.#dependencies.backend.priceFemto;
  }

  /**
   * The results, the best first, with the beginning of their pages, or with what the backend says of them where
   * a page cannot be had in time. Rejects with SearchFailed, and with the signal's reason.
   */
  async search(
    query: string,
    options: SearchOptions,
    { organizationId, requestId, signal }: SearchCaller,
  ): Promise<SearchResult[]> {
    const { backend, onError, pages, pagesTimeoutMs = PAGES_TIMEOUT_MS } = this.#dependencies;
    const found = await backend.find(query, options, signal).catch((error: unknown) => {
      if (!signal.aborted) onError(error, requestId);
      throw error;
    });
    const { maxCharacters } = options;
    const owner = organizationId;
    const limited = AbortSignal.any([signal, AbortSignal.timeout(pagesTimeoutMs)]);
    const results = await Promise.all(
      found.map(async ({ url, title, snippet, text }) => {
        // Many pages refuse programs, and some are none; the search goes on without them.
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

/** The most that one result takes as JSON. */
export function maxResultBytes({ maxCharacters }: SearchOptions): number {
  return maxCharacters + MAX_BYTES_AROUND_TEXT;
}

/** Of a text that a reader sees: so many characters, or fewer where they take more than as many bytes of JSON. */
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

/** Characters that no reader sees, but a model does: tags (U+E0000), and what reorders or hides text. */
const HIDDEN = /[\u{e0000}-\u{e007f}\u200b\u2028-\u202e\u2060-\u2069\ufeff]/gu;

function visible(text: string): string {
  return text.toWellFormed().replace(HIDDEN, "");
}
