import type { AdmittedCall, ProviderCall } from "../../calls/call.ts";
import { sentLimit } from "../../calls/call.ts";
import { estimatedUsage } from "../../calls/call-charge.ts";
import type { AcceptedRequest, AnswerFacts, PaidEndpoint } from "../../calls/endpoint.ts";
import { assertRecordable } from "../../calls/recorded-fields.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { ModelTerms } from "../../lib/catalogue-model.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Usage } from "../../lib/usage.ts";
import type { ClientCompletion } from "../../providers/interface.ts";
import { costBound, estimatedPromptTokens, type PromptSize, promptSize } from "./cost-bound.ts";
import { providerBody } from "./provider-body.ts";
import { completionId, readAnswer, usageBody } from "./render-answer.ts";
import {
  CHAT_ROUTE,
  type ChatRequest,
  conversationHead,
  LONG_BODY,
  statedOutputLimit,
} from "./request.ts";
import { planFields } from "./request-fields.ts";
import { type StreamChatDependencies, streamChat } from "./stream-chat.ts";
import { assertSupported } from "./unsupported-fields.ts";
import { assertWellFormed } from "./well-formed.ts";

/** A chat completion as it was accepted. */
export class AcceptedChat implements AcceptedRequest {
  readonly fields: ChatRequest;
  /** Set where a thread has read the body. */
  readonly bodyHash: string | undefined;
  readonly hidesReasoning: boolean;
  #size: PromptSize | undefined;

  constructor(request: ChatRequest) {
    this.fields = request;
    this.bodyHash = request[LONG_BODY]?.hash;
    this.hidesReasoning =
      request.include_reasoning === false || request.reasoning?.exclude === true;
  }

  /** Measured when it is first needed: a request that is refused before costs nothing. */
  get size(): PromptSize {
    this.#size ??= promptSize(this.fields);
    return this.#size;
  }
}

export type AdmittedChat = AdmittedCall<AcceptedChat>;

export interface ChatEndpointDependencies extends StreamChatDependencies {
  readonly clock: Clock;
}

/** Chat completions (spec 4.5). */
export class ChatEndpoint implements PaidEndpoint<AcceptedChat, ClientCompletion> {
  readonly route = CHAT_ROUTE;
  readonly categories = ["chat", "code"] as const;
  readonly title = "Chat completion";
  readonly capability = "chat";
  readonly #dependencies: ChatEndpointDependencies;

  constructor(dependencies: ChatEndpointDependencies) {
    this.#dependencies = dependencies;
  }

  accept(body: unknown): AcceptedChat {
    const request = body as ChatRequest;
    // The thread that read a long body has checked the whole of it.
    if (request[LONG_BODY] === undefined) {
      assertWellFormed(request);
      assertRecordable(request);
    }
    assertSupported(request);
    return new AcceptedChat(request);
  }

  affinity({ fields }: AcceptedChat): string {
    return fields[LONG_BODY]?.head ?? conversationHead(fields);
  }

  plan({ fields }: AcceptedChat, plan: AdmittedChat["plan"]): AdmittedChat["plan"] {
    return planFields(fields, plan);
  }

  bound({ fields, size }: AcceptedChat, terms: ModelTerms) {
    return costBound(fields, size, terms);
  }

  statedLimit({ fields }: AcceptedChat): number | undefined {
    return statedOutputLimit(fields);
  }

  async call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedChat,
  ): Promise<ClientCompletion> {
    const { fields, hidesReasoning } = admitted.request;
    const limit = sentLimit(admitted, candidate);
    call.body = providerBody(fields, candidate, limit, admitted.plan.lacked);
    const answer = await candidate.provider.chat!(call);
    const nowSeconds = Math.floor(this.#dependencies.clock.nowMs() / 1_000);
    return readAnswer(answer, { requestId: call.requestId, hidesReasoning, nowSeconds });
  }

  usage(completion: ClientCompletion, { size }: AcceptedChat, terms: ModelTerms): Usage {
    return (
      completion.usage ??
      estimatedUsage(estimatedPromptTokens(size, terms), completion.estimatedTokens)
    );
  }

  answer({ body }: ClientCompletion, _request: AcceptedChat, facts: AnswerFacts): string {
    body.id = completionId(facts.requestId);
    body.model = facts.candidate.model.id;
    body.usage = usageBody(facts.usage, facts.costUsd);
    return JSON.stringify(body);
  }

  stream(admitted: AdmittedChat) {
    return streamChat(this.#dependencies, admitted);
  }
}
