import type { ModelConfig } from "../../config/file.ts";
import { providerType } from "../../config/provider-types.ts";
import type { ProviderConfig } from "../../config/providers.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { fileModel } from "./file-model.ts";
import { builtInModels } from "./provider-models.ts";
import { sandboxModels } from "./sandbox-models.ts";

interface CatalogueInput {
  readonly providers: readonly ProviderConfig[];
  /** The configuration file's entries. */
  readonly models: readonly ModelConfig[];
  readonly sandbox: boolean;
  /** Prices that change on a known date are those of this one. */
  readonly now: Date;
}

/**
 * The catalogue that the enabled providers and the file make: built-in models provider by provider, the
 * sandbox's, then the file's new ones; an entry of the file replaces the built-in model of its id.
 * Throws ConfigError for an entry that cannot be completed.
 */
export async function buildCatalogue(input: CatalogueInput): Promise<CatalogueModel[]> {
  const catalogue = new Map<string, CatalogueModel>();
  for (const [type, providers] of providersByType(input.providers)) {
    for (const model of await builtInModels(type, input.now)) {
      catalogue.set(model.id, servedBy(model, providers));
    }
  }
  if (input.sandbox) for (const model of sandboxModels()) catalogue.set(model.id, model);
  const enabled = new Set(input.providers.map(({ id }) => id));
  const knownElsewhere = await modelsOfOtherTypes(input, catalogue);
  for (const config of input.models) {
    const builtIn = catalogue.get(config.id) ?? knownElsewhere.get(config.id);
    catalogue.set(config.id, fileModel(config, builtIn, enabled));
  }
  return [...catalogue.values()];
}

function providersByType(providers: readonly ProviderConfig[]): Map<string, ProviderConfig[]> {
  const byType = new Map<string, ProviderConfig[]>();
  for (const provider of providers) {
    byType.set(provider.type, [...(byType.get(provider.type) ?? []), provider]);
  }
  return byType;
}

/** Several providers of one type serve its models in the order in which they are configured. */
function servedBy(model: CatalogueModel, providers: readonly ProviderConfig[]): CatalogueModel {
  const endpoints = providers.flatMap(({ id }) =>
    model.endpoints.map((endpoint) => ({ ...endpoint, provider: id })),
  );
  return { ...model, provider: endpoints[0]?.provider ?? model.provider, endpoints };
}

/**
 * What is known of a built-in model whose own provider is not enabled: a file that serves it from
 * somewhere else need not repeat its prices and limits.
 */
async function modelsOfOtherTypes(
  input: CatalogueInput,
  catalogue: ReadonlyMap<string, CatalogueModel>,
): Promise<Map<string, CatalogueModel>> {
  const authors = input.models
    .filter(({ id }) => !catalogue.has(id))
    .map(({ id }) => id.slice(0, id.indexOf("/")))
    .filter((author) => providerType(author) !== undefined);
  const models = await Promise.all(
    [...new Set(authors)].map((author) => builtInModels(author, input.now)),
  );
  return new Map(models.flat().map((model) => [model.id, model]));
}
