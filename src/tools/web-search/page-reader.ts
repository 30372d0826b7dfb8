import { unlessAborted } from "../../egress/client.ts";
import type { createEgressDownload } from "../../egress/download.ts";
import { Semaphore } from "../../lib/semaphore.ts";
import type { Extraction } from "../../vector-stores/text/extraction.ts";

interface PageReaderDependencies {
  /** Reaches public addresses only. */
  readonly download: ReturnType<typeof createEgressDownload>;
  readonly extraction: Extraction;
}

/** Of this process. */
const MAX_PAGES_AT_A_TIME = 32;
const MAX_EXTRACTIONS_AT_A_TIME = 2;
const MAX_PAGE_BYTES = 2_097_152;
const DOWNLOAD_TIMEOUT_MS = 6_000;
/** Types of pages whose text can be read. */
const READABLE = /^\s*(?:text\/|application\/(?:xhtml\+xml|xml|json|pdf)\b)/i;
const HTML = /html/i;
const HEADERS = {
  accept: "text/html,application/xhtml+xml,text/plain;q=0.9,application/pdf;q=0.8,*/*;q=0.1",
  "user-agent": "model-gateway (web search)",
};

/** Reads the text of pages of the web, each in a process of its own that is bounded in time and memory. */
export class PageReader {
  readonly #dependencies: PageReaderDependencies;
  readonly #pages = new Semaphore(MAX_PAGES_AT_A_TIME);
  readonly #extractions = new Semaphore(MAX_EXTRACTIONS_AT_A_TIME);

  constructor(dependencies: PageReaderDependencies) {
    this.#dependencies = dependencies;
  }

  /** Rejects where the page cannot be had or read, and with the signal's reason. */
  textOf(url: string, maxCharacters: number, signal: AbortSignal): Promise<string> {
    // A page that waits for its turn waits no longer than its search.
    const read = this.#pages.pass(async () => {
      signal.throwIfAborted();
      return this.#read(url, maxCharacters, signal);
    });
    return unlessAborted(read, signal);
  }

  async #read(url: string, maxCharacters: number, signal: AbortSignal): Promise<string> {
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
    return this.#extractions.pass(() => {
      signal.throwIfAborted();
      return extraction.pageText(bytes, { isHtml, maxCharacters }, signal);
    });
  }
}
