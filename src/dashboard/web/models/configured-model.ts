import type { ConfigurationEntry } from "../pages/configuration-entry.tsx";
import type { Pricing } from "./prices.tsx";

export const MODELS_PATH = "v1/admin/models";

/** A model with its prices in force, as clients see it. */
export interface EffectiveModel {
  readonly name: string;
  readonly description: string;
  readonly category: string;
  readonly context_length: number;
  readonly max_output_tokens: number;
  readonly pricing: Pricing;
  readonly is_active: boolean;
  readonly endpoints: readonly {
    readonly provider: string;
    readonly model: string;
    readonly pricing: Pricing;
  }[];
}

/**
 * A model in the answer of GET /v1/admin/models. A stored model has the members that its entry states, and `effective`.
 * Others have the effective members themselves.
 */
export interface ConfiguredModel extends ConfigurationEntry, Readonly<Record<string, unknown>> {
  /** The organizations that see the model. Absent: all. */
  readonly organizations?: readonly string[];
  readonly effective?: EffectiveModel;
}

export function effectiveOf(model: ConfiguredModel): EffectiveModel {
  return model.effective ?? (model as unknown as EffectiveModel);
}

/** The organizations that see a provider, by its id. Providers that all organizations see are absent. */
export type RestrictedProviders = ReadonlyMap<string, readonly string[]>;

/** A provider in the answer of GET /v1/admin/providers, as far as its visibility is concerned. */
export interface VisibleProvider {
  readonly id: string;
  readonly organizations?: readonly string[];
}

export function restrictedOf(providers: readonly VisibleProvider[]): RestrictedProviders {
  return new Map(
    providers.flatMap(({ id, organizations }) => (organizations ? [[id, organizations]] : [])),
  );
}

/**
 * Returns the organizations that see a model: those of its entry, if they see one of its providers too. Undefined means
 * all organizations.
 */
export function organizationsSeeing(
  model: ConfiguredModel,
  restricted: RestrictedProviders,
): readonly string[] | undefined {
  const providers = effectiveOf(model).endpoints.map(({ provider }) => restricted.get(provider));
  const ofModel = model.organizations;
  if (providers.length === 0 || providers.includes(undefined)) return ofModel;
  const ofProviders = new Set(providers.flatMap((organizations) => organizations ?? []));
  return ofModel === undefined ? [...ofProviders] : ofModel.filter((id) => ofProviders.has(id));
}

export function visibilityText(organizations: readonly string[] | undefined): string {
  if (organizations === undefined) return "All organizations";
  if (organizations.length === 0) return "No organization";
  return organizations.length === 1 ? "1 organization" : `${organizations.length} organizations`;
}
