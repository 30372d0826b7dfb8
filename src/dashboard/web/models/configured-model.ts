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

/** Returns how many organizations see a model. */
export function visibilityOf({ organizations }: ConfiguredModel): string {
  if (organizations === undefined) return "All organizations";
  return organizations.length === 1 ? "1 organization" : `${organizations.length} organizations`;
}
