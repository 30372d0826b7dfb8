import { join } from "node:path";
import { mayUseComputer } from "../../../db/queries/organizations.ts";
import { version } from "../../../package.json";
import { CodeInterpreter } from "../../inference/tools/code-interpreter/code-interpreter.ts";
import { type FileSearchStores, FileSearchTools } from "../../inference/tools/file-search.ts";
import type { HostedServices } from "../../inference/tools/hosted-services.ts";
import { createMcpConnect } from "../../inference/tools/mcp/mcp-connection.ts";
import { McpTools } from "../../inference/tools/mcp/mcp-tools.ts";
import { ToolRegistry } from "../../inference/tools/registry.ts";
import { WebSearchTools } from "../../inference/tools/web-search/web-search-tool.ts";
import { readFilter } from "../../jobs/vector-stores/filters.ts";
import type { VectorStores } from "../../jobs/vector-stores/vector-stores.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { FEMTO_PER_NANO } from "../../lib/money.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { createEgressFetch } from "../../platform/egress/fetch.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { Base } from "./base.ts";
import type { FileParts } from "./files.ts";
import type { Part } from "./lifecycle.ts";
import type { MoneyParts } from "./money.ts";
import type { VectorStoreParts } from "./vector-stores.ts";
import { composeWebSearch } from "./web-search.ts";

/** Bytes of one answer of an MCP server, which is parsed as a whole. */
const MAX_ANSWER_BYTES = 1_048_576;

/** Composes the tools that the gateway runs for models. */
export function composeTools(
  options: Base & {
    readonly files: FileParts;
    readonly vectorStores: VectorStoreParts;
    readonly usableKey: MoneyParts["usableKey"];
  },
): HostedServices & Part {
  const { config, vectorStores, usableKey, files, sql, onError } = options;
  const { webSearch, close } = composeWebSearch(options);
  const codeInterpreter = new CodeInterpreter({
    settings: config.codeInterpreter,
    snapshotFolder: join(config.dataDir, "python"),
    files: files.library,
    onError,
  });
  const registry = new ToolRegistry([
    new FileSearchTools(createStoreSearch(vectorStores.stores, usableKey)),
    new WebSearchTools(webSearch),
    codeInterpreter,
    composeMcp(config),
  ]);
  const prices = {
    webSearchFemto: webSearch?.priceFemto ?? 0n,
    fileSearchFemto: config.fileSearchNanoUsd * FEMTO_PER_NANO,
  };
  return {
    ...{ registry, prices, webSearch },
    mayUseComputer: (organizationId) => mayUseComputer(sql, organizationId),
    stop() {
      close();
      codeInterpreter.close();
    },
  };
}

function createStoreSearch(
  stores: VectorStores,
  usableKey: MoneyParts["usableKey"],
): FileSearchStores {
  return {
    readFilter,
    assertSearchable: (...args) => stores.assertSearchable(...args),
    async searchAll({ keyId, signal }, storeIds, queries, options) {
      const admitAgain = async () => ({ key: await usableKey(keyId) });
      const searcher = {
        caller: await admitAgain(),
        // Embedding the question is a separate call, of another model.
        requestId: newId("req"),
        startedMs: performance.now(),
        // The rate window has already admitted the request that causes this search.
        admittedRateHeaders: {},
        log: {},
        lifetime: {},
        admitAgain,
        request: { signal },
      };
      try {
        return await stores.searchAll(searcher, storeIds, queries, options);
      } catch (error) {
        if (!(error instanceof GatewayError) || signal.aborted) throw error;
        // The question cannot be embedded or paid for now: the search uses words only.
        const weights = { embedding: 0, text: 1 };
        return stores.searchAll(searcher, storeIds, queries, { ...options, weights });
      }
    },
  };
}

/** Composes tools of remote MCP servers. The client is loaded only if the settings allow a server. */
function composeMcp(config: GatewayConfig): McpTools {
  const { mcpServers: allowedHosts } = config;
  const guard = createEgressGuard(config);
  const fetchWith = (onBroken: (error: unknown) => void) =>
    createEgressFetch({ guard }, MAX_ANSWER_BYTES, onBroken);
  return new McpTools({
    connect: allowedHosts.length === 0 ? undefined : createMcpConnect(fetchWith, version),
    allowedHosts,
    parseUrl: (text) => guard.parse(text),
  });
}
