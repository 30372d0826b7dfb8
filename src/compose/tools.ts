import { join } from "node:path";
import type { GatewayConfig } from "../config.ts";
import type { HostedServices } from "../endpoints/responses/hosted-tools.ts";
import { usableKey } from "../http/authentication.ts";
import { GatewayError } from "../lib/errors.ts";
import { newId } from "../lib/ids.ts";
import { CodeInterpreter } from "../tools/code-interpreter/code-interpreter.ts";
import { type FileSearchStores, FileSearchTools } from "../tools/file-search.ts";
import { ToolRegistry } from "../tools/registry.ts";
import { readFilter } from "../vector-stores/filters.ts";
import type { VectorStores } from "../vector-stores/vector-stores.ts";
import type { Base } from "./base.ts";
import type { FileParts } from "./files.ts";

type Keys = Parameters<typeof usableKey>[0];

const FEMTO_PER_NANO = 1_000_000n;

/** The tools that the gateway runs for models. */
export function composeTools(
  options: Keys & {
    readonly config: GatewayConfig;
    readonly stores: VectorStores;
    readonly codeInterpreter: CodeInterpreter;
  },
): HostedServices {
  const { config, stores, codeInterpreter } = options;
  const registry = new ToolRegistry([
    new FileSearchTools(searchedStores(stores, options)),
    codeInterpreter,
  ]);
  const prices = {
    webSearchFemto: config.webSearchNanoUsd * FEMTO_PER_NANO,
    fileSearchFemto: config.fileSearchNanoUsd * FEMTO_PER_NANO,
  };
  return { registry, prices };
}

/** Starts its processes at the first use. Throws where the folder of wheels cannot be read. */
export function composeCodeInterpreter({ config, onError }: Base, files: FileParts) {
  return new CodeInterpreter({
    settings: config.codeInterpreter,
    snapshotFolder: join(config.dataDir, "python"),
    files: files.library,
    onError,
  });
}

function searchedStores(stores: VectorStores, keys: Keys): FileSearchStores {
  return {
    readFilter,
    assertSearchable: (...asked) => stores.assertSearchable(...asked),
    async searchAll({ keyId, signal }, storeIds, queries, options) {
      const admitAgain = async () => ({ key: await usableKey(keys, keyId) });
      const searcher = {
        caller: await admitAgain(),
        // Embedding the question is a call of its own, of another model.
        requestId: newId("req"),
        startedMs: performance.now(),
        // It follows from a request that has its place in the window.
        takenRate: {},
        log: {},
        admitAgain,
        request: { signal },
      };
      try {
        return await stores.searchAll(searcher, storeIds, queries, options);
      } catch (error) {
        if (!(error instanceof GatewayError) || signal.aborted) throw error;
        // The question cannot be embedded now, or not be paid for.
        const weights = { embedding: 0, text: 1 };
        return stores.searchAll(searcher, storeIds, queries, { ...options, weights });
      }
    },
  };
}
