import type { RouteDefinition } from "../../http/route.ts";
import { createCheck } from "../../http/validate.ts";
import type { AcceptedRequest, PaidEndpoint } from "../call/endpoint.ts";
import { PaidCall, type PaidCallDependencies } from "../call/run-call.ts";
import { fillRouted, preparePreset } from "./fill-preset.ts";
import { paidRoute } from "./paid-route.ts";

type JsonRouteDescription = Required<
  Pick<
    RouteDefinition,
    "path" | "tag" | "operationId" | "summary" | "access" | "body" | "responses"
  >
>;

/**
 * Returns the route of a billed endpoint with a JSON body and a JSON answer. Presets fill the members that all
 * billed endpoints have. Fields that the body does not declare are passed to the provider.
 */
export function jsonRoute<Request extends AcceptedRequest, Answer>(
  dependencies: PaidCallDependencies,
  endpoint: PaidEndpoint<Request, Answer>,
  description: JsonRouteDescription,
): RouteDefinition {
  const check = createCheck(description.body, "invalid_body", "Request body");
  const prepare = preparePreset(dependencies.definitions, fillRouted, check);
  const call = new PaidCall(dependencies, endpoint);
  return paidRoute(call, { ...description, allowsUnknownFields: true }, prepare);
}
