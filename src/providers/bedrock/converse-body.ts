import { cacheControlOf } from "../anthropic/cache-control.ts";
import { BodyRender, type ChatRequestFields, type RenderedBody } from "../chat-body.ts";
import { conversationOf, withLastPoint } from "./converse-messages.ts";
import { reasoningFields } from "./converse-reasoning.ts";
import { jsonMode, outputConfig, toolConfig } from "./converse-tools.ts";
import { type ConverseTraits, converseTraits } from "./model-traits.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The model's name at the provider and its id in the catalogue. */
interface ConverseOptions {
  readonly model: string;
  readonly modelId: string | undefined;
}

export interface ConverseBody extends RenderedBody {
  /** Whether the answer arrives as the input of JSON_TOOL. */
  readonly answersByTool: boolean;
  /** Whether the model can stream its answer to this request. */
  readonly isStreamable: boolean;
}

/**
 * Renders a chat request for Converse
 * (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html).
 */
export const converseBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, { model, modelId }: ConverseOptions): ConverseBody => {
    const traits = converseTraits(model, modelId);
    const mode = jsonMode(fields, traits);
    const tools = toolConfig(fields, mode, traits);
    const cacheControl = cacheControlOf(fields);
    const messages = fields.messages as readonly Fields[];
    let conversation = conversationOf(messages, traits, tools !== undefined);
    if (cacheControl !== undefined) {
      conversation = withLastPoint(conversation, cacheControl, traits);
    }
    const { system } = conversation;
    const inference = inferenceConfig(fields);
    const additional = { ...reasoningFields(fields, traits), ...topKFields(fields, traits) };
    const output = outputConfig(mode);
    const body = {
      ...(system.length > 0 && { system }),
      messages: conversation.messages,
      ...(inference !== undefined && { inferenceConfig: inference }),
      ...(tools !== undefined && { toolConfig: tools }),
      ...(Object.keys(additional).length > 0 && { additionalModelRequestFields: additional }),
      ...(output !== undefined && { outputConfig: output }),
    };
    return {
      body: JSON.stringify(body),
      answersByTool: mode.kind === "tool",
      isStreamable: tools === undefined || traits.streamsTools,
    };
  },
);

/** Converse's names of the fields that it shares with OpenAI. */
const RENAMED: Readonly<Record<string, string>> = {
  max_tokens: "maxTokens",
  temperature: "temperature",
  top_p: "topP",
};

function inferenceConfig(fields: ChatRequestFields): Fields | undefined {
  const config: Record<string, unknown> = {};
  for (const name in RENAMED) {
    if (fields[name] !== undefined) config[RENAMED[name]!] = fields[name];
  }
  const stops = (Array.isArray(fields.stop) ? fields.stop : [fields.stop]).filter(Boolean);
  if (stops.length > 0) config.stopSequences = stops;
  return Object.keys(config).length > 0 ? config : undefined;
}

function topKFields({ top_k: topK }: ChatRequestFields, traits: ConverseTraits): Fields {
  if (typeof topK !== "number" || traits.topK === "none") return {};
  return traits.topK === "nova" ? { inferenceConfig: { topK } } : { top_k: topK };
}
