import type { PaidCallDependencies } from "../calls/run-call.ts";
import type { RouteDefinition } from "../http/route.ts";
import { type ChatRouteDependencies, chatRoute } from "./chat-completions/routes.ts";
import { embeddingsRoute } from "./embeddings/endpoint.ts";

export interface EndpointDependencies extends PaidCallDependencies, ChatRouteDependencies {}

/** Every billed endpoint that answers at once. */
export function modelEndpoints(dependencies: EndpointDependencies): RouteDefinition[] {
  return [chatRoute(dependencies), embeddingsRoute(dependencies)];
}
