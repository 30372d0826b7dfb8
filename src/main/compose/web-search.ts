import { Extraction } from "../../documents/extraction.ts";
import { PageReader } from "../../inference/tools/web-search/page-reader.ts";
import { sandboxSearch } from "../../inference/tools/web-search/sandbox-search.ts";
import { SearchBackend } from "../../inference/tools/web-search/search-backend.ts";
import { WebSearch } from "../../inference/tools/web-search/web-search.ts";
import type { SearchConfig } from "../../platform/config/search-settings.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { createEgressDownload } from "../../platform/egress/download.ts";
import { EgressGuard, systemResolve } from "../../platform/egress/guard.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { createHttpClient } from "../../providers/transport/http-client.ts";

/** For the text of one page. */
const PAGE_BOUNDS = { maxMemoryBytes: 536_870_912, maxMs: 5_000 };

export interface WebSearchParts {
  /** That of the sandbox if no search backend is configured; undefined without the sandbox. */
  readonly webSearch: WebSearch | undefined;
  close(): void;
}

/** Searches of the web that the gateway runs itself. */
export function composeWebSearch(options: {
  readonly config: GatewayConfig;
  readonly telemetry: Telemetry;
}): WebSearchParts {
  const { search, sandboxStandsIn } = options.config;
  if (search !== undefined) return searchBy(search, options);
  if (!sandboxStandsIn) return { webSearch: undefined, close: () => {} };
  const dependencies = { backend: sandboxSearch, pages: NO_PAGES, onError: () => {} };
  return { webSearch: new WebSearch(dependencies), close: () => {} };
}

/** The sandbox's results bring their texts: no page is read. */
const NO_PAGES = { textOf: () => Promise.reject(new Error("the sandbox reads no pages")) };

function searchBy(
  search: SearchConfig,
  { config, telemetry }: Parameters<typeof composeWebSearch>[0],
): WebSearchParts {
  // What a search finds is foreign text, as what users name is.
  const guard = new EgressGuard({
    resolve: systemResolve,
    allowedCidrs: config.egressAllow,
    allowsHttp: true,
  });
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
