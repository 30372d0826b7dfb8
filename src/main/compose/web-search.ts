import { Extraction } from "../../documents/extraction.ts";
import { PageReader } from "../../inference/tools/web-search/page-reader.ts";
import { sandboxSearch } from "../../inference/tools/web-search/sandbox-search.ts";
import { SearchBackend } from "../../inference/tools/web-search/search-backend.ts";
import { WebSearch } from "../../inference/tools/web-search/web-search.ts";
import type { SearchConfig } from "../../platform/config/search-settings.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { createEgressDownload } from "../../platform/egress/download.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { createHttpClient } from "../../providers/transport/http-client.ts";

/** Memory and time for reading the text of one page. */
const PAGE_BOUNDS = { maxMemoryBytes: 536_870_912, maxMs: 5_000 };

export interface WebSearchParts {
  /** The sandbox's search if no backend is configured. Undefined without the sandbox. */
  readonly webSearch: WebSearch | undefined;
  close(): void;
}

/** Composes the web search that the gateway runs. */
export function composeWebSearch(options: {
  readonly config: GatewayConfig;
  readonly telemetry: Telemetry;
}): WebSearchParts {
  const { search, usesSandboxFallbacks } = options.config;
  if (search !== undefined) return searchBy(search, options);
  if (!usesSandboxFallbacks) return { webSearch: undefined, close: () => {} };
  const dependencies = { backend: sandboxSearch, pages: NO_PAGES, onError: () => {} };
  return { webSearch: new WebSearch(dependencies), close: () => {} };
}

/** The page reader of the sandbox. It is never called, because the sandbox's results contain their texts. */
const NO_PAGES = { textOf: () => Promise.reject(new Error("the sandbox reads no pages")) };

function searchBy(
  search: SearchConfig,
  { config, telemetry }: Parameters<typeof composeWebSearch>[0],
): WebSearchParts {
  // The URLs that a search finds are untrusted, like URLs of users.
  const guard = createEgressGuard(config, true);
  const extraction = new Extraction(PAGE_BOUNDS);
  const pages = new PageReader({ download: createEgressDownload({ guard }), extraction });
  const backend = new SearchBackend(search, createHttpClient({ proxies: config.proxies }));
  const onError = (error: unknown, requestId: string): void =>
    telemetry.log.warn({ err: error, request_id: requestId }, "web search failed");
  return {
    webSearch: new WebSearch({ backend, pages, onError }),
    close: () => extraction.close(),
  };
}
