import { type Static, Type } from "typebox";
import { GatewayError } from "../../../lib/errors.ts";

const optional = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

const names = (description: string) =>
  optional(Type.Array(Type.String({ minLength: 1 }), { description }));
const usd = (unit: string) =>
  optional(Type.Number({ minimum: 0, description: `USD per ${unit}.` }));

const maxPrice = Type.Object({
  prompt: usd("million tokens"),
  completion: usd("million tokens"),
  request: usd("request"),
  image: usd("image"),
});

const MAX_FALLBACK_MODELS = 16;

/** The schema of `models`: the models to try, in order (spec 4.5). At most 16. */
export const fallbackModels = Type.Array(Type.String({ minLength: 1 }), {
  minItems: 1,
  maxItems: MAX_FALLBACK_MODELS,
  description: "Models to try in order, each if the previous one fails. Replaces `model`.",
});

/** The schema of routing preferences (spec 4.5, `provider`), with OpenRouter's names. */
export const providerPreferences = Type.Object(
  {
    order: names("Providers to try first, in this order."),
    only: names("Only these providers are tried."),
    ignore: names("These providers are not tried."),
    allow_fallbacks: optional(
      Type.Boolean({
        description:
          "If false, only the providers of `order` are tried, or only the first endpoint if `order` is absent.",
      }),
    ),
    require_parameters: optional(
      Type.Boolean({
        description: "Reject the request if a field would be dropped for every provider.",
      }),
    ),
    sort: optional(
      Type.Enum(["price", "throughput", "latency"], {
        description:
          "Order of the endpoints, best first. Throughput and latency are those that this instance has measured.",
      }),
    ),
    max_price: optional(maxPrice),
    data_collection: optional(
      Type.Enum(["allow", "deny"], {
        description:
          "With `deny`, only providers are tried that collect no data according to the operator's configuration.",
      }),
    ),
  },
  { title: "ProviderPreferences" },
);

export type ProviderPreferences = Static<typeof providerPreferences>;

const MEMBERS = Object.keys(providerPreferences.properties);
const PRICES = Object.keys(maxPrice.properties);

/** The routing part of a request. */
export interface RoutePreferences {
  /** Names of models, tried in order. At least one. */
  readonly models: readonly string[];
  /** The request field of the models, for error messages. */
  readonly modelsField: "model" | "models";
  readonly provider: ProviderPreferences | undefined;
}

interface RoutedFields {
  readonly model?: string | null;
  readonly models?: readonly string[] | null;
  readonly provider?: ProviderPreferences | null;
}

/**
 * Returns the routing preferences of a request that matches its schema. `models` overrides `model`. Throws
 * 400 if the request has no model or an unknown preference.
 */
export function routePreferences({
  model,
  models: list,
  provider,
}: RoutedFields): RoutePreferences {
  if (provider) assertKnownPreferences(provider);
  const preferred = provider ?? undefined;
  if (Array.isArray(list)) return { models: list, modelsField: "models", provider: preferred };
  if (model) return { models: [model], modelsField: "model", provider: preferred };
  throw new GatewayError("invalid_body", 'Request body field "model": is required', {
    param: "model",
  });
}

/**
 * Throws 400 for an unknown preference. An ignored preference could send a prompt to a provider that must not
 * get it.
 */
export function assertKnownPreferences(provider: ProviderPreferences): void {
  const unknown =
    Object.keys(provider).find((member) => !MEMBERS.includes(member)) ??
    Object.keys(provider.max_price ?? {})
      .filter((member) => !PRICES.includes(member))
      .map((member) => `max_price.${member}`)[0];
  if (unknown === undefined) return;
  const param = `provider.${unknown.slice(0, 100)}`;
  throw new GatewayError("unsupported_parameter", `${param} is not supported.`, { param });
}
