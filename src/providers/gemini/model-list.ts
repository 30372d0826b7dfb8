import { isFields } from "../../lib/json.ts";

/** Largest page size of the model list. The default is 50 models. */
export const MODEL_LIST_QUERY = "pageSize=1000";

/**
 * Returns the entries of an answer to `GET /models` (https://ai.google.dev/api/models#Model), with the member
 * names of other model lists. Skips models that support neither chats nor embeddings. Returns undefined if
 * the answer is not such a list.
 */
export function geminiModelEntries(answer: unknown): Record<string, unknown>[] | undefined {
  if (!isFields(answer) || !Array.isArray(answer.models)) return undefined;
  return answer.models.filter(isFields).flatMap((model) => {
    const { name, supportedGenerationMethods: listed } = model;
    const methods: readonly unknown[] = Array.isArray(listed) ? listed : [];
    const chats = methods.includes("generateContent");
    if (typeof name !== "string" || !(chats || methods.includes("embedContent"))) return [];
    return [
      {
        id: name.replace(/^models\//, ""),
        ...(!chats && { type: "embedding" }),
        context_length: model.inputTokenLimit,
        max_output_tokens: model.outputTokenLimit,
        supported_parameters: model.thinking === true ? ["reasoning"] : [],
      },
    ];
  });
}
