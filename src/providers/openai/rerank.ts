import { isFields } from "../../lib/json.ts";
import {
  type Provider,
  ProviderFailure,
  type ProviderSettings,
  type Ranking,
  type RerankCall,
} from "../interface.ts";
import { rankingOf } from "../ranking.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import type { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";

/**
 * Returns a function that requests rankings with Jina's API (https://api.jina.ai/redoc). vLLM, llama.cpp, LiteLLM,
 * Together, OpenRouter and Voyage follow it. Text Embeddings Inference has a variant, which is supported too. All
 * documents are ranked; the gateway limits the number in its response. The function rejects with ProviderFailure.
 */
export function openAiRerank(
  wire: HttpJsonProvider,
  settings: ProviderSettings,
): NonNullable<Provider["rerank"]> {
  const url = endpointUrl(settings.baseUrl, "/rerank");
  let takesTexts = false;
  const ask = async (call: RerankCall, asTexts: boolean): Promise<Ranking> => {
    const { model, query, documents, fields } = call;
    const named = asTexts ? { texts: documents } : { documents, return_documents: false };
    const body = JSON.stringify({ ...fields, model, query, ...named });
    const response = await wire.post(url, body, call);
    const options = { documents: documents.length, failureContext: wire.failureContext };
    return wire.read(response, rankingRead, options, call);
  };
  return async (call) => {
    const signal = call.abortNotice ?? call.signal;
    try {
      return await ask(call, takesTexts);
    } catch (error) {
      const failure = failureOfThrown(error, signal);
      if (settings.type !== "openai-compatible" || !isUnknownMember(failure)) throw failure;
      const ranking = await ask(call, !takesTexts).catch((second) => {
        throw signal.aborted ? failureOfThrown(second, signal) : failure;
      });
      takesTexts = !takesTexts;
      return ranking;
    }
  };
}

/** Returns true if Text Embeddings Inference rejected the member `documents`, which it calls `texts`. */
function isUnknownMember(failure: unknown): boolean {
  return (
    failure instanceof ProviderFailure && failure.kind === "rejected" && failure.status === 422
  );
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
    if (Array.isArray(answer)) return rankingOf({ results: answer }, documents);
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    return rankingOf(answer, documents);
  },
);
