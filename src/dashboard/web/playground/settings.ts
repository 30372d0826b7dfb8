import { signal } from "@preact/signals";

/** Settings of the viewer for all models, as typed. */
export interface Settings {
  readonly system: string;
  readonly temperature: string;
  readonly topP: string;
  readonly maxTokens: string;
  /** The reasoning effort. Empty means the model's default. */
  readonly effort: string;
  /** Name of a preset of the organization. Empty: none. */
  readonly preset: string;
  /** Definitions of tools, as a JSON list. */
  readonly tools: string;
  /** JSON schema of the answer. */
  readonly schema: string;
  /** The voice of models that answer with sound. Empty: they answer with text only. */
  readonly voice: string;
  /** Further fields of the request, as a JSON object. */
  readonly fields: string;
}

export const NO_SETTINGS: Settings = {
  ...{ system: "", temperature: "", topP: "", maxTokens: "", effort: "", preset: "" },
  ...{ tools: "", schema: "", voice: "", fields: "" },
};

export const settings = signal<Settings>(NO_SETTINGS);

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the object of a JSON text, {} for no text, or undefined if the text is no JSON object. */
export function objectIn(text: string): object | undefined {
  if (text.trim() === "") return {};
  const value = parsed(text);
  return isObject(value) ? value : undefined;
}

/** Returns the tools of a JSON text. A function without its wrapper gets one. Undefined if the text is no such list. */
export function toolsIn(text: string): readonly object[] | undefined {
  if (text.trim() === "") return [];
  const value = parsed(text);
  const list = Array.isArray(value) ? value : [value];
  if (!list.every(isObject)) return undefined;
  const tools = list.map((tool) => ("name" in tool ? { type: "function", function: tool } : tool));
  return tools.every((tool) => "type" in tool) ? tools : undefined;
}

const MAX_TEMPERATURE = 2;

/** Returns the errors of settings, by their names. */
export function faultsOf({ temperature, topP, maxTokens, tools, schema, fields }: Settings) {
  const isWithin = (text: string, most: number) => Number(text) >= 0 && Number(text) <= most;
  return {
    temperature: isWithin(temperature, MAX_TEMPERATURE) ? undefined : "Enter a number from 0 to 2.",
    topP: isWithin(topP, 1) ? undefined : "Enter a number from 0 to 1.",
    maxTokens: /^(?:[1-9]\d{0,8})?$/.test(maxTokens)
      ? undefined
      : "Enter a whole number of at least 1.",
    tools: toolsIn(tools) === undefined ? "Enter a JSON list of functions." : undefined,
    schema: objectIn(schema) === undefined ? "Enter a JSON schema." : undefined,
    fields: objectIn(fields) === undefined ? "Enter a JSON object." : undefined,
  };
}

/** Abilities of a model that decide which settings apply. */
export interface ModelTraits {
  readonly hasEffort: boolean;
  readonly makesSound: boolean;
}

/** Returns the fields of a request for a model, without its messages. */
export function settingFields(stated: Settings, { hasEffort, makesSound }: ModelTraits): object {
  const { temperature, topP, maxTokens, effort, preset, tools, schema, voice, fields } = stated;
  const definitions = toolsIn(tools) ?? [];
  return {
    ...objectIn(fields),
    ...(preset !== "" && { preset }),
    ...(temperature !== "" && { temperature: Number(temperature) }),
    ...(topP !== "" && { top_p: Number(topP) }),
    ...(maxTokens !== "" && { max_tokens: Number(maxTokens) }),
    ...(effort !== "" && hasEffort && { reasoning_effort: effort }),
    ...(definitions.length > 0 && { tools: definitions }),
    ...(schema.trim() !== "" && {
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", schema: objectIn(schema) },
      },
    }),
    // Streams carry sound as PCM only.
    ...(voice !== "" &&
      makesSound && { modalities: ["text", "audio"], audio: { voice, format: "pcm16" } }),
  };
}

const MAX_SETTING_CHARACTERS = 20_000;
const MAX_MODEL_CHARACTERS = 256;
/** Models that answer one prompt. */
export const MAX_SIDES = 4;
/** Name of the fragment's part. */
const SHARED = "settings=";

/** Returns the fragment of a link with the models and the settings, without messages. */
export function sharedFragment(models: readonly string[], stated: Settings): string {
  const set = Object.entries(stated).filter(([, value]) => value !== "");
  return SHARED + encodeURIComponent(JSON.stringify({ models, ...Object.fromEntries(set) }));
}

/** Returns the models and settings of a link. Anyone can write one, so unknown members are left out. */
export function fromFragment(
  fragment: string,
): { readonly models: readonly string[]; readonly settings: Settings } | undefined {
  if (!fragment.startsWith(SHARED)) return undefined;
  let value: unknown;
  try {
    value = parsed(decodeURIComponent(fragment.slice(SHARED.length)));
  } catch {
    return undefined;
  }
  if (!isObject(value)) return undefined;
  const { models, ...others } = value as Record<string, unknown>;
  const isText = (text: unknown, most: number): text is string =>
    typeof text === "string" && text.length <= most;
  const stated = Object.keys(NO_SETTINGS).flatMap((name) => {
    const text = Object.hasOwn(others, name) ? others[name] : undefined;
    return isText(text, MAX_SETTING_CHARACTERS) ? [[name, text]] : [];
  });
  return {
    models: (Array.isArray(models) ? models : [])
      .filter((id) => isText(id, MAX_MODEL_CHARACTERS))
      .slice(0, MAX_SIDES),
    settings: { ...NO_SETTINGS, ...Object.fromEntries(stated) },
  };
}
