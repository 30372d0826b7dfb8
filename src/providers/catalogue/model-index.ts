import type { CatalogueModel } from "../../lib/catalogue-model.ts";

/** Look-ups by name, for the request path. */
export interface ModelIndex {
  /** Case-sensitive. Active or not. */
  byId(id: string): CatalogueModel | undefined;
  /**
   * By id, which may name an inactive model, or by a bare slug, which resolves when exactly one active
   * model has it.
   */
  resolve(name: string): CatalogueModel | undefined;
  all(): readonly CatalogueModel[];
}

export function createModelIndex(models: readonly CatalogueModel[]): ModelIndex {
  const all = Object.freeze([...models]);
  const byId = new Map(all.map((model) => [model.id, model]));
  // null marks a slug that several models have.
  const bySlug = new Map<string, CatalogueModel | null>();
  for (const model of byId.values()) {
    if (!model.isActive) continue;
    const slug = model.id.slice(model.id.indexOf("/") + 1);
    bySlug.set(slug, bySlug.has(slug) ? null : model);
  }
  return {
    byId: (id) => byId.get(id),
    resolve: (name) => byId.get(name) ?? bySlug.get(name) ?? undefined,
    all: () => all,
  };
}
