import type { ModelCategory, ModelPrices } from "../../lib/catalogue-model.ts";
import { type FemtoUsd, femtoFromUsd } from "../../lib/money.ts";
import { isSelfHosted } from "../../platform/config/provider-types.ts";

/** More models than any provider lists. Further ones are not read. */
export const MAX_LISTED_MODELS = 3_000;
const NAME = /^[A-Za-z0-9@][A-Za-z0-9._:@+~/-]{0,199}$/;
/** A file or folder. llama.cpp and vLLM name a model by its path unless a setting states a name. */
const PATH = /^(?:~?\/|\.{1,2}\/|[A-Za-z]:[\\/])|[\\/][^\\/]*\.gguf$/i;
const MAX_PATH_CHARACTERS = 1_000;
/** Characters that a log line or a table cannot show. */
const NOT_SHOWN = /[^\x20-\x7e]+/g;
const MAX_SHOWN_CHARACTERS = 200;
const MAX_TOKENS = 100_000_000;
/** Highest plausible price in femto-USD per token. A list with a higher one is wrong. */
const MAX_TOKEN_FEMTO = 10n ** 15n;
const MILLION = 1_000_000n;

type Members = Readonly<Record<string, unknown>>;

/** The form of prices in a list: their location, their names, and the number of tokens that they are for. */
interface PriceForm {
  readonly at: (model: Members) => unknown;
  readonly tokens: bigint;
  readonly input: string;
  readonly output: string;
  readonly cachedInput?: string;
  readonly cacheWrite?: string;
  /**
   * Members that are not prices, or are prices of kinds that cannot occur here. Any other price that is not 0 cannot be
   * metered.
   */
  readonly besides: readonly string[];
}

/** Price forms of the provider types that publish prices in their lists. */
const PRICE_FORMS: Readonly<Record<string, PriceForm>> = {
  // https://openrouter.ai/docs/api-reference/list-available-models
  openrouter: {
    at: (model) => model.pricing,
    tokens: 1n,
    input: "prompt",
    output: "completion",
    cachedInput: "input_cache_read",
    cacheWrite: "input_cache_write",
    besides: ["web_search", "discount", "input_cache_write_1h"],
  },
  // https://docs.together.ai/reference/models
  together: {
    at: (model) => model.pricing,
    tokens: MILLION,
    input: "input",
    output: "output",
    cachedInput: "cached_input",
    besides: ["hourly", "base", "finetune"],
  },
  deepinfra: {
    at: (model) => membersOf(model.metadata)?.pricing,
    tokens: MILLION,
    input: "input_tokens",
    output: "output_tokens",
    cachedInput: "cache_read_tokens",
    cacheWrite: "cache_write_tokens",
    besides: [],
  },
  // https://docs.sambanova.ai, models endpoint
  sambanova: {
    at: (model) => model.pricing,
    tokens: 1n,
    input: "prompt",
    output: "completion",
    besides: [],
  },
};

/** Returns true if an id can contain the name. */
export function isModelName(name: string): boolean {
  return NAME.test(name);
}

/**
 * Parses a provider's answer to `GET /models`, whatever it contains. Entries that are not models are skipped. Models
 * whose names cannot be part of an id are unusable. Returns undefined if the answer is not a list.
 */
export function readModelList(typeName: string, answer: unknown): DiscoveredModel[] | undefined {
  const list = Array.isArray(answer) ? answer : membersOf(answer)?.data;
  if (!Array.isArray(list)) return undefined;
  const models = new Map<string, DiscoveredModel>();
  for (const entry of list.slice(0, MAX_LISTED_MODELS)) {
    const model = readModel(typeName, entry);
    if (model !== undefined && !models.has(model.name)) models.set(model.name, model);
  }
  return [...models.values()];
}

function readModel(typeName: string, entry: unknown): DiscoveredModel | undefined {
  const model = membersOf(entry);
  const name = model?.id;
  if (model === undefined || typeof name !== "string" || name === "") return undefined;
  const baseName = isSelfHosted(typeName) ? baseNameOf(name) : undefined;
  const shownName = baseName ?? name;
  if (!NAME.test(shownName)) return unusable(name);
  const category = categoryOf(shownName, model);
  if (category === undefined) return undefined;
  const contextLength = contextLengthOf(model);
  const maxOutputTokens = maxOutputTokensOf(model);
  return {
    name,
    ...(baseName !== undefined && { baseName }),
    category,
    ...(contextLength !== undefined && { contextLength }),
    ...(maxOutputTokens !== undefined && { maxOutputTokens }),
    ...pricesOf(typeName, model),
    capabilities: capabilitiesOf(model),
    created: tokenCount(model.created, 253_402_300_799) ?? 0,
  };
}

/** Returns the last part of a path. Undefined if the name is not a path. */
function baseNameOf(name: string): string | undefined {
  if (!PATH.test(name) || name.length > MAX_PATH_CHARACTERS) return undefined;
  return name
    .split(/[\\/]/)
    .filter((part) => part !== "")
    .at(-1);
}

function unusable(name: string): DiscoveredModel {
  const safeName = name.slice(0, MAX_SHOWN_CHARACTERS).replaceAll(NOT_SHOWN, "?");
  const reason = "its name cannot be part of an id: give it another name at the server";
  return { name: safeName, category: "chat", unusable: reason, capabilities: [], created: 0 };
}

/** Categories by a model's output besides text, in OpenRouter's terms. */
const CATEGORIES: ReadonlyMap<unknown, ModelCategory> = new Map([
  ["embeddings", "embedding"],
  ["speech", "audio"],
  ["transcription", "audio"],
  ["audio", "audio"],
]);

/**
 * Returns the category by Together's and DeepInfra's types, else by the name. Undefined if no endpoint serves such
 * models.
 */
function categoryOf(name: string, model: Members): ModelCategory | undefined {
  const outputs = membersOf(model.architecture)?.output_modalities;
  if (Array.isArray(outputs)) {
    const output = outputs.find((modality) => modality !== "text");
    if (output !== undefined) return CATEGORIES.get(output) ?? "image";
  }
  switch (model.type) {
    case "language":
    case "moderation":
    case "video":
      return undefined;
    case "image":
    case "audio":
    case "embedding":
    case "rerank":
      return model.type;
    case "transcribe":
      return "audio";
  }
  if (membersOf(model.capabilities)?.completion_chat === false) return undefined;
  if (/moderation|guard-?model/i.test(name)) return undefined;
  if (/rerank/i.test(name)) return "rerank";
  if (/embed|\bbge-|\be5-|\bgte-/i.test(name)) return "embedding";
  if (/whisper|tts|audio|voice|speech|transcribe/i.test(name)) return "audio";
  if (/image|dall-e|flux|stable-diffusion|sdxl/i.test(name)) return "image";
  return /code|codestral|devstral|starcoder/i.test(name) ? "code" : "chat";
}

/**
 * Returns the context length, by the names of OpenRouter and Together, Groq, vLLM, Mistral and LM Studio, Anthropic,
 * DeepInfra, llama.cpp.
 */
function contextLengthOf(model: Members): number | undefined {
  const candidates = [
    model.context_length,
    model.context_window,
    model.max_model_len,
    model.loaded_context_length,
    model.max_context_length,
    model.max_input_tokens,
    membersOf(model.metadata)?.context_length,
    membersOf(model.meta)?.n_ctx,
    membersOf(model.meta)?.n_ctx_train,
  ];
  for (const candidate of candidates) {
    const length = tokenCount(candidate, MAX_TOKENS);
    if (length !== undefined && length > 0) return length;
  }
  return undefined;
}

function maxOutputTokensOf(model: Members): number | undefined {
  const stated =
    membersOf(model.top_provider)?.max_completion_tokens ??
    model.max_completion_tokens ??
    model.max_output_tokens ??
    model.max_tokens ??
    membersOf(model.metadata)?.max_tokens;
  const tokens = tokenCount(stated, MAX_TOKENS);
  return tokens === 0 ? undefined : tokens;
}

function capabilitiesOf(model: Members): string[] {
  const parameters = model.supported_parameters;
  const inputs = membersOf(model.architecture)?.input_modalities;
  const has = (list: unknown, name: string) => Array.isArray(list) && list.includes(name);
  return [
    ...(has(parameters, "tools") ? ["function_calling"] : []),
    ...(has(inputs, "image") ? ["vision"] : []),
    ...(has(parameters, "response_format") ? ["json_mode"] : []),
    ...(has(parameters, "reasoning") ? ["reasoning"] : []),
  ];
}

function pricesOf(
  typeName: string,
  model: Members,
): Pick<DiscoveredModel, "prices" | "unmeteredKind"> {
  const form = Object.hasOwn(PRICE_FORMS, typeName) ? PRICE_FORMS[typeName] : undefined;
  const stated = form === undefined ? undefined : membersOf(form.at(model));
  if (form === undefined || stated === undefined) return {};
  const { tokens } = form;
  const input = tokenFemto(stated[form.input], tokens);
  const output = tokenFemto(stated[form.output], tokens) ?? 0n;
  if (input === undefined) return {};
  const cachedInput = tokenFemto(stated[form.cachedInput ?? ""], tokens);
  const cacheWrite = tokenFemto(stated[form.cacheWrite ?? ""], tokens);
  const unmeteredKind = unmeteredKindOf(form, stated, output);
  const prices: DiscoveredPrices = {
    input: String(input),
    output: String(output),
    // A cache price of 0 means that none is stated.
    ...(cachedInput && { cachedInput: String(cachedInput) }),
    ...(cacheWrite && { cacheWrite: String(cacheWrite > input ? cacheWrite : input) }),
  };
  return { prices, ...(unmeteredKind !== undefined && { unmeteredKind }) };
}

function unmeteredKindOf(form: PriceForm, stated: Members, output: bigint): string | undefined {
  const expectedKinds = [
    form.input,
    form.output,
    form.cachedInput,
    form.cacheWrite,
    ...form.besides,
  ];
  for (const [kind, price] of Object.entries(stated)) {
    if (expectedKinds.includes(kind) || price === null) continue;
    const femto = tokenFemto(price, form.tokens);
    // Reasoning that costs as much as the rest of the answer has no separate price.
    if (femto === 0n || (kind === "internal_reasoning" && femto === output)) continue;
    return kind.slice(0, 40);
  }
  return undefined;
}

/** Returns a price in USD for `tokens` tokens, a number or its text, as femto-USD for one token, rounded up. */
function tokenFemto(price: unknown, tokens: bigint): bigint | undefined {
  if (typeof price !== "number" && typeof price !== "string") return undefined;
  let femto: bigint;
  try {
    femto = femtoFromUsd(price);
  } catch {
    return undefined;
  }
  const perToken = (femto + tokens - 1n) / tokens;
  return femto < 0n || perToken > MAX_TOKEN_FEMTO ? undefined : perToken;
}

function tokenCount(value: unknown, most: number): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 && value <= most
    ? value
    : undefined;
}

export function membersOf(value: unknown): Members | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Members)
    : undefined;
}

/** A model in a provider's own list, as far as the list describes it. Can be stored as JSON. */
export interface DiscoveredModel {
  /** The server's name of the model. */
  readonly name: string;
  /** The gateway's name of the model, if the server names it by the path of its file. */
  readonly baseName?: string;
  /** The reason why it cannot be offered. Absent if it can. */
  readonly unusable?: string;
  readonly category: ModelCategory;
  readonly contextLength?: number;
  readonly maxOutputTokens?: number;
  /** Prices of the model. Absent if the list states no prices. */
  readonly prices?: DiscoveredPrices;
  /** A priced kind of use that the gateway does not meter. Absent if there is none. */
  readonly unmeteredKind?: string;
  readonly capabilities: readonly string[];
  /** Unix seconds. */
  readonly created: number;
}

/** Prices in femto-USD per token, in decimal digits. */
interface DiscoveredPrices {
  readonly input: string;
  readonly output: string;
  readonly cachedInput?: string;
  readonly cacheWrite?: string;
}

export function modelPrices({
  input,
  output,
  cachedInput,
  cacheWrite,
}: DiscoveredPrices): ModelPrices {
  const inputTokenFemto: FemtoUsd = BigInt(input);
  return {
    inputTokenFemto,
    outputTokenFemto: BigInt(output),
    cachedInputTokenFemto: cachedInput === undefined ? inputTokenFemto : BigInt(cachedInput),
    cacheWriteTokenFemto: cacheWrite === undefined ? inputTokenFemto : BigInt(cacheWrite),
  };
}
