import type { Extraction } from "../../../documents/extraction.ts";
import { overloaded } from "../../../lib/errors.ts";
import { allButOne, FairSemaphore } from "../../../lib/fair-share.ts";
import type { createEgressDownload } from "../../../platform/egress/download.ts";

interface PageReaderDependencies {
  /** Downloads from public addresses only. */
  readonly download: ReturnType<typeof createEgressDownload>;
  readonly extraction: Extraction;
}

/**
 * Maximum pages that this process loads at a time, in total and for one organization. A slow page takes 6
 * seconds.
 */
const MAX_PAGES_AT_A_TIME = 64;
const MAX_PAGES_OF_ONE = MAX_PAGES_AT_A_TIME / 2;
const MAX_EXTRACTIONS_AT_A_TIME = 3;
const MAX_WAITING_PAGES = 4_096;
const MAX_PAGE_BYTES = 2_097_152;
const DOWNLOAD_TIMEOUT_MS = 6_000;
/** Content types of pages with readable text. */
const READABLE = /^\s*(?:text\/|application\/(?:xhtml\+xml|xml|json|pdf)\b)/i;
const HTML = /html/i;
const HEADERS = {
  accept: "text/html,application/xhtml+xml,text/plain;q=0.9,application/pdf;q=0.8,*/*;q=0.1",
  "user-agent": "model-gateway (web search)",
};

export interface RequestedPage {
  /** The organization whose search found the page. */
  readonly owner: string;
  readonly url: string;
  readonly maxCharacters: number;
}

/** Reads the text of web pages. Each page is extracted in a separate process with limited time and memory. */
export class PageReader {
  readonly #dependencies: PageReaderDependencies;
  readonly #semaphores = createPageSemaphores();

  constructor(dependencies: PageReaderDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Returns the text of a page. Rejects if the page cannot be loaded or read, if too many pages wait, and
   * with the signal's reason.
   */
  textOf(page: RequestedPage, signal: AbortSignal): Promise<string> {
    return this.#semaphores.pages.run(page.owner, () => this.#read(page, signal), signal);
  }

  async #read({ owner, url, maxCharacters }: RequestedPage, signal: AbortSignal): Promise<string> {
    const { download, extraction } = this.#dependencies;
    let isHtml = false;
    const bytes = await download(url, {
      ...{ maxBytes: MAX_PAGE_BYTES, timeoutMs: DOWNLOAD_TIMEOUT_MS, headers: HEADERS, signal },
      inspect(headers) {
        const type = headers.get("content-type") ?? "";
        if (type !== "" && !READABLE.test(type)) throw new Error("the page is not text");
        isHtml = HTML.test(type);
      },
    });
    const options = { isHtml, maxCharacters };
    const extract = () => extraction.pageText(bytes, options, signal);
    return this.#semaphores.extractions.run(owner, extract, signal);
  }
}

/** Returns the semaphores that bound page downloads and text extractions. */
export function createPageSemaphores() {
  return {
    pages: pageSemaphore(MAX_PAGES_AT_A_TIME, MAX_PAGES_OF_ONE),
    extractions: pageSemaphore(MAX_EXTRACTIONS_AT_A_TIME, allButOne(MAX_EXTRACTIONS_AT_A_TIME)),
  };
}

function pageSemaphore(most: number, mostOfOne: number): FairSemaphore {
  return new FairSemaphore({
    most,
    mostOfOne,
    maxWaiting: MAX_WAITING_PAGES,
    refusal: () => overloaded("Too many pages are being read."),
  });
}
