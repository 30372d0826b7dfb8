import { type Static, Type } from "typebox";
import { GatewayError } from "../../../lib/errors.ts";

const optional = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

const names = (description: string) =>
  optional(Type.Array(Type.String({ minLength: 1 }), { description }));
const usd = (unit: string) =>
  optional(Type.Number({ minimum: 0, description: `in USD for ${unit}` }));

const maxPrice = Type.Object({
  prompt: usd("a million tokens"),
  completion: usd("a million tokens"),
  request: usd("a request"),
  image: usd("an image"),
});

/** Routing preferences (spec 4.5, `provider`), in OpenRouter's words. */
export const providerPreferences = Type.Object({
  order: names("Providers to try first, in this order"),
  only: names("No other provider is tried"),
  ignore: names("Providers that are not tried"),
  allow_fallbacks: optional(
    Type.Boolean({ description: "false: only the providers of `order`, or the first one" }),
  ),
  require_parameters: optional(
    Type.Boolean({
      description: "Refuse the request where a field would be left out for every provider",
    }),
  ),
  sort: optional(
    Type.Enum(["price", "throughput", "latency"], {
      description: "The best first; throughput and latency are those this instance has measured",
    }),
  ),
  max_price: optional(maxPrice),
  data_collection: optional(
    Type.Enum(["allow", "deny"], {
      description: "deny: only providers that the operator has stated to collect no data",
    }),
  ),
});

export type ProviderPreferences = Static<typeof providerPreferences>;

const MEMBERS = Object.keys(providerPreferences.properties);
const PRICES = Object.keys(maxPrice.properties);

/** What a request asks of its route. */
export interface RoutePreferences {
  /** Names of models, tried in order; at least one. */
  readonly models: readonly string[];
  /** The field they came from, for errors. */
  readonly modelsField: "model" | "models";
  readonly provider: ProviderPreferences | undefined;
}

interface RoutedFields {
  readonly model?: string | null;
  readonly models?: readonly string[] | null;
  readonly provider?: ProviderPreferences | null;
}

/**
 * The preferences of a request whose schema was checked; `models` overrides `model`. Throws 400: no model, or
 * a preference that the gateway does not know.
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

/** A preference that is not heeded might send a prompt where it must not go: it is refused. */
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
