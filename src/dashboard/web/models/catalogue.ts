import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, session } from "../api.ts";
import { messageOf } from "../components/dialog.tsx";
import { isFree, mainPrices, type Price, type Pricing } from "./prices.tsx";

/** A model in the answer of GET /v1/models. */
export interface ListedModel {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly provider: string;
  readonly context_length: number;
  readonly pricing: Pricing;
  readonly long_prompt_pricing?: Pricing & { readonly above_tokens: number };
  readonly image_pricing?: readonly {
    readonly size?: string;
    readonly quality?: string;
    readonly image?: string;
    readonly max_tokens?: number;
  }[];
  readonly capabilities: readonly string[];
  readonly category: string;
  /** Unix seconds. 0 if unknown. */
  readonly created: number;
  readonly architecture: {
    readonly input_modalities: readonly string[];
    readonly output_modalities: readonly string[];
  };
  readonly top_provider: { readonly max_completion_tokens: number | null };
  readonly supported_parameters: readonly string[];
}

export const USES = [
  ["chat", "Chat"],
  ["embedding", "Embedding"],
  ["image", "Image"],
  ["speech", "Speech"],
  ["transcription", "Transcription"],
  ["rerank", "Rerank"],
  ["moderation", "Moderation"],
] as const;

/** Returns the use of a model. */
export function useOf({ category, architecture }: ListedModel): string {
  if (category === "code") return "chat";
  if (category !== "audio") return category;
  return architecture.output_modalities.includes("speech") ? "speech" : "transcription";
}

export function useTitle(model: ListedModel): string {
  const use = useOf(model);
  return USES.find(([id]) => id === use)?.[1] ?? use;
}

interface Feature {
  readonly id: string;
  readonly title: string;
  has(model: ListedModel): boolean;
}

const takes = (modality: string) => (model: ListedModel) =>
  model.architecture.input_modalities.includes(modality);
const makes = (modality: string) => (model: ListedModel) =>
  model.architecture.output_modalities.includes(modality);

/** Features by which models can be filtered, in addition to their use. */
export const FEATURES: readonly Feature[] = [
  {
    id: "tools",
    title: "Tools",
    has: ({ capabilities }) => capabilities.includes("function_calling"),
  },
  { id: "vision", title: "Vision", has: takes("image") },
  {
    id: "reasoning",
    title: "Reasoning",
    has: ({ capabilities }) => capabilities.includes("reasoning"),
  },
  {
    id: "json_schema",
    title: "JSON schema",
    has: ({ supported_parameters: parameters }) => parameters.includes("structured_outputs"),
  },
  { id: "audio_in", title: "Audio input", has: takes("audio") },
  {
    id: "audio_out",
    title: "Audio output",
    has: (model) => makes("audio")(model) || makes("speech")(model),
  },
  { id: "image_out", title: "Image output", has: makes("image") },
];

interface ModelList {
  readonly models: readonly ListedModel[];
  /** Whether further pages of the list are loading. */
  readonly isLoading: boolean;
  readonly error?: string;
}

const EMPTY_LIST: ModelList = { models: [], isLoading: true };
const PAGE_SIZE = 1_000;
const FRESH_MS = 60_000;

const listed = signal<ModelList>(EMPTY_LIST);
let loadedAtMs = Number.NEGATIVE_INFINITY;
let stop = new AbortController();

// The next session can belong to another organization, which has other models.
effect(() => {
  if (session.value) return;
  stop.abort();
  stop = new AbortController();
  loadedAtMs = Number.NEGATIVE_INFINITY;
  listed.value = EMPTY_LIST;
});

/**
 * Returns every model that the organization can call. Returns the first pages before the last ones have
 * loaded.
 */
export function useModels(): ModelList {
  useEffect(() => void load(), []);
  return listed.value;
}

async function load(): Promise<void> {
  if (Date.now() - loadedAtMs < FRESH_MS) return;
  loadedAtMs = Date.now();
  const { signal } = stop;
  const previous = listed.value.models;
  // Keyed by id, because the list can change between two of its pages.
  const models = new Map<string, ListedModel>();
  try {
    for (let total = 1, offset = 0; offset < total; offset += PAGE_SIZE) {
      const path = `v1/models?limit=${PAGE_SIZE}&offset=${offset}`;
      const page = await call<{ data: ListedModel[]; total_count: number }>("GET", path, {
        signal,
      });
      if (signal.aborted) return;
      total = page.total_count;
      for (const model of page.data) models.set(model.id, model);
      const isLoading = offset + PAGE_SIZE < total;
      if (!isLoading || previous.length === 0) {
        listed.value = { models: [...models.values()], isLoading };
      }
    }
  } catch (error) {
    if (signal.aborted) return;
    loadedAtMs = Number.NEGATIVE_INFINITY;
    listed.value = { models: previous, isLoading: false, error: messageOf(error) };
  }
}

export interface ModelFilter {
  readonly text?: string;
  readonly use?: string;
  readonly provider?: string;
  readonly features?: readonly string[];
}

/** Searched texts in lower case: the names, and the names followed by the description. */
const searchTexts = new WeakMap<ListedModel, readonly [names: string, all: string]>();

function searchedText(model: ListedModel): readonly [names: string, all: string] {
  let texts = searchTexts.get(model);
  if (texts === undefined) {
    const names = `${model.id} ${model.name} ${model.provider}`.toLowerCase();
    texts = [names, `${names} ${model.description.toLowerCase()}`];
    searchTexts.set(model, texts);
  }
  return texts;
}

/**
 * Returns the matching models in their order. Models whose names match come before those whose description
 * matches.
 */
export function matching(
  models: readonly ListedModel[],
  { text = "", use = "", provider = "", features = [] }: ModelFilter,
): ListedModel[] {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean);
  const selectedFeatures = FEATURES.filter(({ id }) => features.includes(id));
  const byName: ListedModel[] = [];
  const byDescription: ListedModel[] = [];
  for (const model of models) {
    if (use !== "" && useOf(model) !== use) continue;
    if (provider !== "" && model.provider !== provider) continue;
    if (!selectedFeatures.every((feature) => feature.has(model))) continue;
    const [names, all] = searchedText(model);
    if (terms.every((term) => names.includes(term))) byName.push(model);
    else if (terms.every((term) => all.includes(term))) byDescription.push(model);
  }
  return [...byName, ...byDescription];
}

export const ORDERS = [
  ["name", "Name"],
  ["input", "Lowest input price"],
  ["output", "Lowest output price"],
  ["context", "Largest context"],
  ["newest", "Newest"],
] as const;

const collator = new Intl.Collator("en", { numeric: true });

export function sorted(models: readonly ListedModel[], order: string): ListedModel[] {
  if (order === "context") {
    return models.toSorted((a, b) => b.context_length - a.context_length);
  }
  if (order === "newest") return models.toSorted((a, b) => b.created - a.created);
  if (order === "input" || order === "output") {
    const priced = models.map((model) => {
      const price = mainPrices(model)[order];
      return { model, rank: priceRank(model, price), amount: price?.amount ?? 0 };
    });
    return priced
      .toSorted((a, b) => a.rank.localeCompare(b.rank) || a.amount - b.amount)
      .map(({ model }) => model);
  }
  return models.toSorted(
    (a, b) => collator.compare(a.name, b.name) || collator.compare(a.id, b.id),
  );
}

/**
 * Returns the sort group of a price: free, then tokens, then other units by name. Amounts of different units
 * are not comparable.
 */
function priceRank(model: ListedModel, price: Price | undefined): string {
  if (price === undefined) return isFree(model) ? "0" : "3";
  return price.kind === "prompt" || price.kind === "completion" ? "1" : `2 ${price.unit}`;
}

export function providersOf(models: readonly ListedModel[]): string[] {
  return [...new Set(models.map(({ provider }) => provider))].toSorted(collator.compare);
}

/** Returns the API path of a model. Its id can contain slashes. */
export function modelPath(id: string): string {
  return `v1/models/${id.split("/").map(encodeURIComponent).join("/")}`;
}
