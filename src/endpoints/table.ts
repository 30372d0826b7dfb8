import type { PaidCallDependencies } from "../calls/run-call.ts";
import type { RouteDefinition } from "../http/route.ts";
import { chatRoute } from "./chat-completions/endpoint.ts";
import type { LongBodies } from "./chat-completions/long-body.ts";
import { embeddingsRoute } from "./embeddings/endpoint.ts";

/** Every billed endpoint that answers at once. */
export function modelEndpoints(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
): RouteDefinition[] {
  return [chatRoute(dependencies, longBodies), embeddingsRoute(dependencies)];
}
