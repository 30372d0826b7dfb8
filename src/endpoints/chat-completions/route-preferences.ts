import type { RoutePreferences } from "../../calls/routing/plan-route.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ChatRequest } from "./request.ts";

const NONE: readonly string[] = [];

/** Routing wishes of a request (spec 4.5): `models` overrides `model`. */
export function routePreferences(request: ChatRequest): RoutePreferences {
  const isList = Array.isArray(request.models);
  const models = isList ? request.models! : request.model ? [request.model] : NONE;
  if (models.length === 0) {
    throw new GatewayError("invalid_body", 'Request body field "model": is required', {
      param: "model",
    });
  }
  return {
    models,
    modelsField: isList ? "models" : "model",
    providerOrder: request.provider?.order ?? NONE,
    allowFallbacks: request.provider?.allow_fallbacks ?? true,
  };
}
