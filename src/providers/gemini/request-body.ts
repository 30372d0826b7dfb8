import { isFields } from "../../lib/json.ts";
import { BodyRender, type RenderedBody } from "../chat-body.ts";
import { conversationOf } from "./contents.ts";
import { textAt } from "./media-part.ts";
import { GEMINI_2_5, generationOf, type ModelGeneration } from "./model-generation.ts";
import { thinkingConfig } from "./thinking-config.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Returns the body of generateContent (https://ai.google.dev/api/generate-content) for a chat in OpenAI's
 * form, from which unsupported fields have been removed. Throws ProviderFailure for a part that Gemini does
 * not support, with the part's path as its `param`.
 *
 * @param model its name at the provider
 * @param modelId its id in the catalogue
 */
export function geminiRequest(body: Fields, model: string, modelId?: string): Fields {
  const generation = generationOf(model, modelId);
  const conversation = conversationOf(body.messages as readonly Fields[], generation);
  const tools = functionDeclarations(body.tools);
  const toolConfig = toolConfigOf(body, generation);
  const generationConfig = generationConfigOf(body, generation);
  const { safety_settings: safetySettings } = body;
  return {
    ...conversation,
    ...(tools.length > 0 && { tools: [{ functionDeclarations: tools }] }),
    ...(toolConfig !== undefined && { toolConfig }),
    ...(safetySettings !== undefined && { safetySettings }),
    ...(Object.keys(generationConfig).length > 0 && { generationConfig }),
  };
}

/** The model's name at the provider and its id in the catalogue. */
interface GeminiBodyOptions {
  readonly model: string;
  readonly modelId: string | undefined;
}

export const geminiBody = new BodyRender(
  import.meta.url,
  (fields, { model, modelId }: GeminiBodyOptions): RenderedBody => ({
    body: JSON.stringify(geminiRequest(fields, model, modelId)),
  }),
);

function functionDeclarations(tools: unknown): Fields[] {
  if (!Array.isArray(tools)) return [];
  return tools.map((tool: Fields, index) => {
    const { name, description, parameters } = (tool.function ?? {}) as Fields;
    return {
      name: textAt(name, `tools.${index}.function.name`),
      ...(typeof description === "string" && { description }),
      ...(isFields(parameters) && { parametersJsonSchema: parameters }),
    };
  });
}

/**
 * Returns the tool configuration. VALIDATED restricts calls to the declared schemas, as `strict` demands.
 * Models before 2.5 do not have it.
 */
function toolConfigOf(
  { tools, tool_choice: choice }: Fields,
  { version }: ModelGeneration,
): Fields | undefined {
  const config = (mode: string, allowedFunctionNames?: readonly unknown[]) => ({
    functionCallingConfig: { mode, ...(allowedFunctionNames && { allowedFunctionNames }) },
  });
  const isStrict =
    version >= GEMINI_2_5 &&
    Array.isArray(tools) &&
    tools.some((tool) => tool.function?.strict === true);
  if (choice === "none") return config("NONE");
  if (choice === "required") return config("ANY");
  if (isFields(choice) && isFields(choice.function)) return config("ANY", [choice.function.name]);
  if (isFields(choice) && isFields(choice.allowed_tools)) {
    const { mode, tools: allowed } = choice.allowed_tools;
    const names = (allowed as Fields[]).map((tool, index) =>
      textAt(
        (tool.function as Fields | undefined)?.name,
        `tool_choice.allowed_tools.tools.${index}`,
      ),
    );
    return config(mode === "required" ? "ANY" : "VALIDATED", names);
  }
  if (isStrict) return config("VALIDATED");
  return choice === "auto" ? config("AUTO") : undefined;
}

/** Gemini's names of the fields that it shares with OpenAI. */
const RENAMED: Readonly<Record<string, string>> = {
  n: "candidateCount",
  max_tokens: "maxOutputTokens",
  temperature: "temperature",
  top_p: "topP",
  top_k: "topK",
  frequency_penalty: "frequencyPenalty",
  presence_penalty: "presencePenalty",
  seed: "seed",
};

/** Values that equal the default. Some models reject them as explicit values. */
const DEFAULTS: Readonly<Record<string, number>> = { n: 1, top_k: 0 };

function generationConfigOf(body: Fields, generation: ModelGeneration): Fields {
  const config: Record<string, unknown> = {};
  for (const name in RENAMED) {
    const value = body[name];
    if (value === undefined || DEFAULTS[name] === value) continue;
    config[RENAMED[name]!] = value;
  }
  const stops = (Array.isArray(body.stop) ? body.stop : [body.stop]).filter(Boolean);
  if (stops.length > 0) config.stopSequences = stops;
  if (body.logprobs === true) {
    config.responseLogprobs = true;
    if (body.top_logprobs) config.logprobs = body.top_logprobs;
  }
  addFormat(config, body.response_format);
  addImages(config, body);
  const thinking = thinkingConfig(body, generation);
  if (thinking !== undefined) config.thinkingConfig = thinking;
  return config;
}

/**
 * Adds the output modalities and the image configuration
 * (https://ai.google.dev/gemini-api/docs/image-generation). Without modalities an image model answers with
 * text and images.
 */
function addImages(config: Record<string, unknown>, body: Fields): void {
  const { modalities, image_config: image } = body;
  if (Array.isArray(modalities)) {
    config.responseModalities = modalities.map((modality) => String(modality).toUpperCase());
  }
  if (!isFields(image)) return;
  const { aspect_ratio: aspectRatio, image_size: imageSize } = image;
  config.imageConfig = { aspectRatio, imageSize };
}

function addFormat(config: Record<string, unknown>, format: unknown): void {
  if (!isFields(format) || format.type === "text") return;
  config.responseMimeType = "application/json";
  const schema = isFields(format.json_schema) ? format.json_schema.schema : undefined;
  if (isFields(schema)) config.responseJsonSchema = schema;
}
