import { BodyRender, type ChatRequestFields, type RenderedBody } from "../chat-body.ts";
import { addBreakpoints } from "./automatic-cache.ts";
import { cacheControlOf } from "./cache-control.ts";
import { promptOf } from "./messages.ts";
import { claudeTraits } from "./model-traits.ts";
import { possibleThinking, thinkingConfig } from "./thinking.ts";
import { type JsonMode, jsonMode, toolFields } from "./tools.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface RenderOptions {
  readonly model: string;
  readonly modelId: string | undefined;
  readonly stream: boolean;
  /** The version that the body states in place of the model, if the URL names the model. */
  readonly versionInBody?: string | undefined;
  /** Whether the body names the betas, for platforms that do not forward headers. */
  readonly namesBetas?: boolean | undefined;
}

export interface MessagesBody extends RenderedBody {
  /** Whether the answer arrives as the input of a tool: see `jsonMode`. */
  readonly answersByTool: boolean;
  /** Betas of the API that the request has to name. Anthropic reads them from the header `anthropic-beta`. */
  readonly betas: readonly string[];
}

const INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14";

/** Renders a chat request for Anthropic's Messages API. */
export const messagesBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, options: RenderOptions): MessagesBody => {
    const { model, modelId, stream, versionInBody, namesBetas } = options;
    const traits = claudeTraits(model, modelId);
    const mode = jsonMode(fields, traits);
    const { system, messages } = promptOf(fields.messages as readonly Fields[]);
    const { tools, ...choice } = toolFields(fields, mode, traits);
    const outputTokens = fields.max_tokens as number;
    const requested = possibleThinking(traits, fields);
    const { thinking, effort } = thinkingConfig(requested, traits, outputTokens);
    const stop = stopSequences(fields.stop);
    const cacheControl = cacheControlOf(fields);
    if (cacheControl !== undefined) {
      addBreakpoints(cacheControl, { tools: tools ?? [], system, messages });
    }
    const config = outputConfig(effort, mode);
    const { temperature, top_p: topP, top_k: topK, user, service_tier: tier } = fields;
    // Adaptive thinking is always interleaved.
    const isInterleaved = fields.interleaved_thinking === true && thinking?.type === "enabled";
    const betas = isInterleaved && tools !== undefined ? [INTERLEAVED_THINKING] : [];
    const body = {
      ...(versionInBody === undefined ? { model } : { anthropic_version: versionInBody }),
      ...(namesBetas === true && betas.length > 0 && { anthropic_beta: betas }),
      max_tokens: outputTokens,
      ...(system.length > 0 && { system }),
      messages,
      ...(tools !== undefined && { tools }),
      ...choice,
      ...(thinking !== undefined && { thinking }),
      ...(config !== undefined && { output_config: config }),
      ...(stop !== undefined && { stop_sequences: stop }),
      ...(temperature !== undefined && { temperature }),
      ...(topP !== undefined && { top_p: topP }),
      ...(topK !== undefined && { top_k: topK }),
      ...(typeof user === "string" && { metadata: { user_id: user } }),
      ...(tier === "standard_only" && { service_tier: tier }),
      ...(stream && { stream: true }),
    };
    return { body: JSON.stringify(body), answersByTool: mode.kind === "tool", betas };
  },
);

function outputConfig(effort: string | undefined, mode: JsonMode): Fields | undefined {
  if (effort === undefined && mode.kind !== "schema") return undefined;
  return {
    ...(effort !== undefined && { effort }),
    ...(mode.kind === "schema" && { format: { type: "json_schema", schema: mode.schema } }),
  };
}

function stopSequences(stop: unknown): readonly unknown[] | undefined {
  if (typeof stop === "string") return stop === "" ? undefined : [stop];
  return Array.isArray(stop) && stop.length > 0 ? stop : undefined;
}
