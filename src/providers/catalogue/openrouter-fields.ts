import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { CATEGORIES } from "../../lib/units.ts";
import { audioTaskOf } from "../audio/fields.ts";
import type { Provider } from "../interface.ts";

interface Architecture {
  /** `text+image->text`. */
  readonly modality: string;
  readonly input_modalities: readonly string[];
  readonly output_modalities: readonly string[];
  /** The family of the tokenizer. "Other" if the model's name does not show it. */
  readonly tokenizer: string;
  readonly instruct_type: null;
}

/**
 * Fields that OpenRouter's model description has in addition to this gateway's
 * (https://openrouter.ai/docs/overview/models). Its SDK requires each of them.
 */
export interface OpenRouterFields {
  readonly canonical_slug: string;
  readonly hugging_face_id: null;
  readonly architecture: Architecture;
  /** Limits of the first endpoint. */
  readonly top_provider: {
    readonly context_length: number;
    readonly max_completion_tokens: number | null;
    readonly is_moderated: boolean;
  };
  readonly per_request_limits: null;
  /** Chat fields that at least one of its endpoints supports. */
  readonly supported_parameters: readonly string[];
  readonly default_parameters: null;
  readonly supported_voices: null;
  readonly links: { readonly details: string };
}

/** Providers by id. */
export type ProvidersWithFields = ReadonlyMap<string, Pick<Provider, "fields">>;

export function openRouterFields(
  model: CatalogueModel,
  providers: ProvidersWithFields,
): OpenRouterFields {
  const { id, canonicalId = id, contextLength, maxOutputTokens } = model;
  return {
    canonical_slug: canonicalId,
    hugging_face_id: null,
    architecture: architectureOf(model, canonicalId),
    top_provider: {
      context_length: contextLength,
      max_completion_tokens: maxOutputTokens || null,
      is_moderated: false,
    },
    per_request_limits: null,
    supported_parameters: answersChats(model) ? supportedParameters(model, providers) : [],
    default_parameters: null,
    supported_voices: null,
    links: { details: `/v1/models/${id}` },
  };
}

function answersChats({ category, capabilities }: CatalogueModel): boolean {
  return category === "chat" || category === "code" || capabilities.includes("image_output");
}

function architectureOf(model: CatalogueModel, name: string): Architecture {
  const [inputs, outputs] = modalitiesOf(model);
  return {
    modality: `${inputs.join("+")}->${outputs.join("+")}`,
    input_modalities: inputs,
    output_modalities: outputs,
    tokenizer: TOKENIZERS.find(([pattern]) => pattern.test(name))?.[1] ?? "Other",
    instruct_type: null,
  };
}

type Modalities = readonly [inputs: readonly string[], outputs: readonly string[]];

function modalitiesOf(model: CatalogueModel): Modalities {
  const { category, capabilities, prices } = model;
  const { output } = CATEGORIES[category];
  if (output === undefined) return audioModalities(model);
  const inputs = ["text"];
  if (capabilities.includes("vision")) inputs.push("image");
  if (prices.audioInputTokenFemto !== undefined) inputs.push("audio");
  if (capabilities.includes("image_output")) return [inputs, ["image", "text"]];
  const speaks = capabilities.includes("audio_output");
  return [inputs, [output, ...(speaks ? ["audio"] : [])]];
}

/** Returns the modalities of an audio model. The category contains speech models and transcription models. */
function audioModalities({ id, prices, capabilities }: CatalogueModel): Modalities {
  const task = audioTaskOf({ prices, capabilities }, { model: id, modelId: id });
  return task === "speech" ? [["text"], ["speech"]] : [["audio"], ["transcription"]];
}

/** OpenRouter's names of tokenizer families, by patterns of model ids. */
const TOKENIZERS: readonly (readonly [RegExp, string])[] = [
  [/gemma/, "Gemma"],
  [/gemini/, "Gemini"],
  [/claude/, "Claude"],
  [/grok/, "Grok"],
  [/llama-?4/, "Llama4"],
  [/llama-?3/, "Llama3"],
  [/llama-?2/, "Llama2"],
  [/deepseek/, "DeepSeek"],
  [/qwen-?3/, "Qwen3"],
  [/qwen|qwq/, "Qwen"],
  [/mistral|mixtral|codestral|devstral|ministral|pixtral/, "Mistral"],
  [/command|cohere/, "Cohere"],
  [/nova/, "Nova"],
  [/gpt|(?:^|\/)o\d/, "GPT"],
];

interface Parameter {
  /** The field of the request, if it has another name. */
  readonly field?: string;
  /** An example value, to ask a provider whether it supports the field. */
  readonly value: unknown;
  /** The capability that a model needs to use the field. */
  readonly needs?: string;
}

/** OpenRouter's names of parameters, in its order. */
const PARAMETERS: Readonly<Record<string, Parameter>> = {
  temperature: { value: 0.5 },
  top_p: { value: 0.5 },
  top_k: { value: 40 },
  min_p: { value: 0.1 },
  top_a: { value: 0.1 },
  frequency_penalty: { value: 0.5 },
  presence_penalty: { value: 0.5 },
  repetition_penalty: { value: 1.1 },
  logit_bias: { value: { 1: 1 } },
  logprobs: { value: true },
  top_logprobs: { value: 1 },
  prediction: { value: { type: "content", content: "." } },
  seed: { value: 1 },
  response_format: { value: { type: "json_object" }, needs: "json_mode" },
  structured_outputs: {
    field: "response_format",
    value: { type: "json_schema", json_schema: { name: "answer", schema: { type: "object" } } },
    needs: "json_mode",
  },
  stop: { value: "END" },
  tools: { value: [{ type: "function", function: { name: "tool" } }], needs: "function_calling" },
  tool_choice: { value: "auto", needs: "function_calling" },
  parallel_tool_calls: { value: true, needs: "function_calling" },
  reasoning: { value: { effort: "medium" }, needs: "reasoning" },
  include_reasoning: { field: "reasoning", value: { effort: "medium" }, needs: "reasoning" },
  reasoning_effort: { value: "medium", needs: "reasoning" },
  verbosity: { value: "low" },
};

const PROBES = Object.entries(PARAMETERS).map(([name, { field = name, value, needs }]) => {
  return { name, field, value, needs, request: { messages: [], [field]: value } };
});

function supportedParameters(model: CatalogueModel, providers: ProvidersWithFields): string[] {
  const endpoints = model.endpoints.flatMap(({ provider: id, model: name }) => {
    const provider = providers.get(id);
    return provider === undefined
      ? []
      : [{ fields: provider.fields, named: { model: name, modelId: model.id } }];
  });
  const supported = PROBES.filter(({ field, value, needs, request }) => {
    if (needs !== undefined && !model.capabilities.includes(needs)) return false;
    return endpoints.some(
      ({ fields, named }) => !fields?.unsupported(field, value, named, false, request).length,
    );
  });
  return ["max_tokens", "max_completion_tokens", ...supported.map(({ name }) => name)];
}
