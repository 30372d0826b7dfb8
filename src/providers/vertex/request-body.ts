import { BodyRender, type RenderedBody } from "../chat-body.ts";
import { geminiRequest } from "../gemini/request-body.ts";

type Part = Readonly<Record<string, unknown>>;

/** Media type of a file if neither its URL nor the request states one. Vertex AI requires a type. */
const DEFAULT_TYPE = "image/jpeg";

interface VertexBodyOptions {
  readonly model: string;
  readonly modelId: string | undefined;
}

/**
 * Renders the body of generateContent for Vertex AI
 * (https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference). It differs from
 * Gemini's: calls and their results have no ids ('Unknown name "id" at …function_call'), and files by URL
 * have a type.
 */
export const vertexBody = new BodyRender(
  import.meta.url,
  (fields, { model, modelId }: VertexBodyOptions): RenderedBody => {
    const { contents, ...rest } = geminiRequest(fields, model, modelId);
    const shaped = (contents as readonly { readonly parts: readonly Part[] }[]).map((content) => ({
      ...content,
      parts: content.parts.map(vertexPart),
    }));
    return { body: JSON.stringify({ ...rest, contents: shaped }) };
  },
);

function vertexPart(part: Part): Part {
  const { functionCall, functionResponse, fileData } = part;
  if (functionCall !== undefined) return { ...part, functionCall: withoutId(functionCall) };
  if (functionResponse !== undefined) {
    const response = withoutId(functionResponse);
    const { parts } = response;
    return {
      ...part,
      functionResponse: Array.isArray(parts)
        ? { ...response, parts: parts.map(vertexPart) }
        : response,
    };
  }
  if (fileData !== undefined) {
    return { ...part, fileData: { mimeType: DEFAULT_TYPE, ...(fileData as Part) } };
  }
  return part;
}

function withoutId(value: unknown): Part {
  const { id: _, ...rest } = value as Part;
  return rest;
}
