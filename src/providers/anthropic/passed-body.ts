import { BodyRender, type ChatRequestFields, type RenderedBody } from "../chat-body.ts";
import { addBreakpoints } from "./automatic-cache.ts";
import { type CacheControl, cacheControlOf } from "./cache-control.ts";

type Fields = Readonly<Record<string, unknown>>;
type Block = Record<string, unknown>;

interface PassedOptions {
  /** Members that replace the client's: the model or a platform's version, and whether to stream. */
  readonly set: Fields;
  /**
   * True if breakpoints replace the `cache_control` of the request itself, which only Anthropic supports.
   */
  readonly addsBreakpoints?: boolean | undefined;
}

/** Renders a client's request of the Messages API with the gateway's members. */
export const passedBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, { set, addsBreakpoints }: PassedOptions): RenderedBody => {
    const requested = addsBreakpoints === true ? cacheControlOf(fields) : undefined;
    const passed = requested === undefined ? fields : withBreakpoints(fields, requested);
    return { body: JSON.stringify({ ...passed, ...set }) };
  },
);

function withBreakpoints(fields: ChatRequestFields, requested: CacheControl): Fields {
  const { cache_control: _, ...rest } = fields;
  const { tools, system } = rest;
  const messages = (rest.messages as readonly Block[]).map((message) => ({
    ...message,
    role: message.role as string,
    content: blocksOf(message.content),
  }));
  const prompt = { tools: blocksOf(tools), system: blocksOf(system), messages };
  addBreakpoints(requested, prompt);
  return {
    ...rest,
    messages,
    ...(prompt.tools.length > 0 && { tools: prompt.tools }),
    ...(prompt.system.length > 0 && { system: prompt.system }),
  };
}

/** Returns copies of the blocks, which the caller can change. A text becomes a block. */
function blocksOf(content: unknown): Block[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  return Array.isArray(content) ? content.map((block: Block) => ({ ...block })) : [];
}
