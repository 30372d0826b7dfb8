import { isFields } from "../../lib/json.ts";
import type { Provider, ProviderSettings, RerankCall } from "../interface.ts";
import { rankingOf } from "../ranking.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import type { TypedWire } from "../transport/typed-wire.ts";
import { failureInside } from "./failure-mapping.ts";

/**
 * Rankings as Jina has them (https://api.jina.ai/redoc), which vLLM, llama.cpp, LiteLLM, Together, OpenRouter and
 * Voyage follow. All documents are ranked: how many are shown is the gateway's matter. Rejects with ProviderFailure.
 */
export function openAiRerank(
  wire: TypedWire,
  settings: ProviderSettings,
): NonNullable<Provider["rerank"]> {
  const url = endpointUrl(settings.baseUrl, "/rerank");
  return async (call: RerankCall) => {
    const { model, query, documents, fields } = call;
    try {
      const body = JSON.stringify({ ...fields, model, query, documents, return_documents: false });
      const response = await wire.post(url, body, call);
      const { failureContext } = wire;
      return await wire.read(
        response,
        rankingRead,
        { documents: documents.length, failureContext },
        call,
      );
    } catch (error) {
      throw failureOfThrown(error, call.abortNotice ?? call.signal);
    }
  };
}

interface RankingOptions {
  readonly documents: number;
  readonly failureContext: FailureContext;
}

export const rankingRead = new AnswerRead(
  import.meta.url,
  (text, { documents, failureContext }: RankingOptions) => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    if (!isFields(answer)) throw brokenAnswer("JSON that is no object");
    return rankingOf(answer, documents);
  },
);
