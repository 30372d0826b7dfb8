import type { RouteDefinition } from "../../http/route.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import type { PaidCallDependencies } from "../call/run-call.ts";
import { answerBackground, type ResponseServices } from "../responses/background-routes.ts";
import { conversationRoutes } from "../responses/conversation-routes.ts";
import { storedResponseRoutes } from "../responses/stored-routes.ts";
import type { HostedServices } from "../tools/hosted-services.ts";
import { chatRoute } from "./chat-completions/endpoint.ts";
import type { DocumentTexts } from "./chat-completions/file-parser.ts";
import { embeddingsRoute } from "./embeddings/endpoint.ts";
import type { ImageServices } from "./images/endpoint.ts";
import { imageRoutes } from "./images/routes.ts";
import type { LongBodies } from "./long-bodies.ts";
import { countTokensRoute } from "./messages/count-tokens.ts";
import { messagesRoute } from "./messages/endpoint.ts";
import { moderationsRoute } from "./moderations/endpoint.ts";
import { rerankRoute } from "./rerank/endpoint.ts";
import { compactRoute } from "./responses/compact-endpoint.ts";
import { countInputRoute } from "./responses/count-input.ts";
import { responsesRoute } from "./responses/endpoint.ts";
import { speechRoute } from "./speech/endpoint.ts";
import { transcriptionRoutes } from "./transcriptions/endpoint.ts";

/** Services that single endpoints need besides the paid call. */
interface EndpointServices {
  readonly longBodies: LongBodies;
  readonly workThread: FairWorkThread;
  readonly images: ImageServices;
  /** Lets chats request an echo of the provider's request body. */
  readonly allowsEcho: boolean;
  /** Extracts the texts of the documents in chats. */
  readonly documents: DocumentTexts;
  readonly responses: ResponseServices;
  readonly hosted: HostedServices;
}

/** Returns the routes that call models, and those of stored responses and conversations. */
export function modelEndpoints(
  dependencies: PaidCallDependencies,
  { longBodies, workThread, images, responses, hosted, allowsEcho, documents }: EndpointServices,
): RouteDefinition[] {
  return [
    chatRoute(dependencies, longBodies, { ...hosted, allowsEcho, thread: workThread, documents }),
    embeddingsRoute(dependencies),
    rerankRoute(dependencies),
    moderationsRoute(dependencies),
    ...imageRoutes(dependencies, images),
    speechRoute(dependencies),
    ...transcriptionRoutes(dependencies, workThread),
    messagesRoute(dependencies, longBodies),
    countTokensRoute(dependencies, longBodies, workThread),
    responsesRoute(dependencies, longBodies, responses.store, hosted, (...call) =>
      answerBackground(responses, ...call),
    ),
    compactRoute(dependencies, longBodies, responses.store, hosted),
    countInputRoute(dependencies, longBodies, workThread, responses.store, hosted),
    ...storedResponseRoutes(responses, workThread),
    ...conversationRoutes(responses.conversations, workThread),
  ];
}
