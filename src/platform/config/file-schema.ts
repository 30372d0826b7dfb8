import Type from "typebox";
import { Compile } from "typebox/schema";
import { CONFIGURED_UNITS, type ConfiguredUnit, MODEL_CATEGORIES } from "../../lib/units.ts";
import { PROVIDER_TYPES } from "./provider-types.ts";

/** A text of limited length. Each `description` completes "must be …" when a value is rejected. */
const Text = (maxLength: number) =>
  Type.String({
    minLength: 1,
    maxLength,
    pattern: "^[^\\u0000-\\u001f\\u007f]*$",
    description: `a text of 1 to ${maxLength} characters without control characters`,
  });
const Cost = Type.Number({
  minimum: 0,
  maximum: 1000,
  description: "a price in USD from 0 to 1000",
});
const Tokens = Type.Integer({
  minimum: 1,
  maximum: 1_000_000_000,
  description: "a whole number of tokens from 1 to 1000000000",
});
const Id = Type.String({
  pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
  description: "an id of letters, digits, dots, hyphens and underscores",
});
/** The form of a model's own id. An alias can also be a bare word. */
export const MODEL_ID = "a model id like author/slug";

const ApiKey = Type.String({
  pattern: "^[\\x21-\\x7e]+$",
  maxLength: 8192,
  description: "printable ASCII without spaces",
});
const VariableName = Type.String({
  pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
  description: "the name of an environment variable",
});
const HeaderName = Type.String({
  pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$",
  description: "the name of a header",
});
const HeaderValue = Type.String({
  pattern: "^[\\x20-\\x7e]*$",
  maxLength: 8192,
  description: "a text of printable ASCII characters",
});
const Weight = Type.Number({
  minimum: 0,
  maximum: 1_000_000,
  description: "a weight from 0 to 1000000",
});
const ParallelRequests = Type.Integer({
  minimum: 1,
  maximum: 1_000_000,
  description: "a whole number of calls from 1 to 1000000",
});

const Batches = Type.Boolean({ description: "true or false" });
const BatchPriceShare = Type.Number({
  minimum: 0,
  maximum: 1,
  description: "a share of the usual prices from 0 to 1",
});

/** Access to Amazon Bedrock. */
const AwsAccess = Type.Object(
  {
    region: Type.Optional(Text(32)),
    access_key_id: Type.Optional(ApiKey),
    access_key_id_env: Type.Optional(VariableName),
    secret_access_key: Type.Optional(ApiKey),
    secret_access_key_env: Type.Optional(VariableName),
    session_token: Type.Optional(ApiKey),
    session_token_env: Type.Optional(VariableName),
  },
  { additionalProperties: false, description: "an object" },
);

const OrganizationId = Type.String({
  pattern: "^[A-Za-z0-9_-]{1,64}$",
  description: "the id of an organization",
});
/** The organizations that see a provider or a model. Absent: all. For others it does not exist. */
const Organizations = Type.Array(OrganizationId, {
  minItems: 1,
  maxItems: 1000,
  description: "a list of 1 to 1000 ids of organizations",
});

const ProviderEntry = Type.Object(
  {
    id: Id,
    type: Text(64),
    base_url: Type.Optional(Text(2048)),
    api_key: Type.Optional(ApiKey),
    api_key_env: Type.Optional(VariableName),
    api_keys: Type.Optional(
      Type.Array(
        Type.Object(
          {
            key: Type.Optional(ApiKey),
            key_env: Type.Optional(VariableName),
            weight: Type.Optional(Weight),
          },
          { additionalProperties: false, description: "an object" },
        ),
        { minItems: 1, maxItems: 64, description: "a list of 1 to 64 keys" },
      ),
    ),
    aws: Type.Optional(AwsAccess),
    data_collection: Type.Optional(Type.Enum(["allow", "deny"], { description: "allow or deny" })),
    // Vertex AI only.
    project: Type.Optional(Text(100)),
    location: Type.Optional(Text(64)),
    credentials_file: Type.Optional(Text(4096)),
    // Azure only.
    api_version: Type.Optional(Text(64)),
    deployments: Type.Optional(
      Type.Record(Text(256), Text(256), {
        maxProperties: 1000,
        description: "an object of at most 1000 names of models and their deployments",
      }),
    ),
    max_parallel_requests: Type.Optional(ParallelRequests),
    /** Headers that each call sends in addition. They replace those with the same name. */
    headers: Type.Optional(
      Type.Record(HeaderName, HeaderValue, {
        maxProperties: 32,
        description: "an object of at most 32 headers and their values",
      }),
    ),
    /** URL of the proxy for its calls, in place of that of the environment. */
    proxy: Type.Optional(Text(2048)),
    batches: Type.Optional(Batches),
    batch_price_share: Type.Optional(BatchPriceShare),
    organizations: Type.Optional(Organizations),
  },
  { additionalProperties: false, description: "an object" },
);

const Capabilities = Type.Array(
  Type.String({
    pattern: "^[a-z][a-z0-9_]{0,63}$",
    description: "a capability like streaming or json_mode",
  }),
  { maxItems: 32, description: "a list of at most 32 capabilities" },
);

/** The price of images of a size and a quality. A missing size or quality means any. */
const ImagePrice = Type.Object(
  {
    size: Type.Optional(
      Type.String({
        pattern: "^\\d{1,5}x\\d{1,5}$",
        description: "a size in pixels like 1024x1536",
      }),
    ),
    quality: Type.Optional(Text(32)),
    cost_per_image: Type.Optional(Cost),
    max_tokens: Type.Optional(Tokens),
  },
  { additionalProperties: false, description: "an object" },
);

const unitPrices = Object.fromEntries(
  CONFIGURED_UNITS.map(({ setting }) => [setting.name, Type.Optional(Cost)]),
) as Record<ConfiguredUnit["setting"]["name"], Type.TOptional<typeof Cost>>;

const pricing = {
  input_cost_per_token: Type.Optional(Cost),
  output_cost_per_token: Type.Optional(Cost),
  cached_input_cost_per_token: Type.Optional(Cost),
  cache_write_input_cost_per_token: Type.Optional(Cost),
  cost_per_image: Type.Optional(Cost),
  image_prices: Type.Optional(
    Type.Array(ImagePrice, {
      minItems: 1,
      maxItems: 64,
      description: "a list of 1 to 64 sizes and qualities with their costs",
    }),
  ),
  cost_per_pixel: Type.Optional(Cost),
  cost_per_input_image: Type.Optional(Cost),
  image_input_cost_per_token: Type.Optional(Cost),
  image_output_cost_per_token: Type.Optional(Cost),
  ...unitPrices,
};

/** The prices of training a model, and of the models that result. */
const tuningPrices = {
  training_cost_per_token: Type.Optional(Cost),
  tuned_input_cost_per_token: Type.Optional(Cost),
  tuned_cached_input_cost_per_token: Type.Optional(Cost),
  tuned_output_cost_per_token: Type.Optional(Cost),
};

/** The prices and limits that a model's entry and each of its endpoints can state. */
const terms = {
  context_length: Type.Optional(Tokens),
  max_output_tokens: Type.Optional(Tokens),
  ...pricing,
};

const EndpointEntry = Type.Object(
  {
    provider: Id,
    model: Text(256),
    ...terms,
    capabilities: Type.Optional(Capabilities),
    weight: Type.Optional(Weight),
    max_parallel_requests: Type.Optional(ParallelRequests),
    batches: Type.Optional(Batches),
    batch_price_share: Type.Optional(BatchPriceShare),
  },
  { additionalProperties: false, description: "an object" },
);

const ModelName = Type.String({
  maxLength: 256,
  pattern: "^[A-Za-z0-9][A-Za-z0-9._:@+~-]*(/[A-Za-z0-9][A-Za-z0-9._:@+~-]*)*$",
  description: MODEL_ID,
});

const ModelEntry = Type.Object(
  {
    id: ModelName,
    /** The model that the entry is an alias of. The entry then has only its id and this member. */
    alias_of: Type.Optional(Text(256)),
    name: Type.Optional(Text(256)),
    description: Type.Optional(Text(4096)),
    category: Type.Optional(
      Type.Enum([...MODEL_CATEGORIES], { description: `one of ${MODEL_CATEGORIES.join(", ")}` }),
    ),
    ...terms,
    ...tuningPrices,
    capabilities: Type.Optional(Capabilities),
    batches: Type.Optional(Batches),
    batch_price_share: Type.Optional(BatchPriceShare),
    is_active: Type.Optional(Type.Boolean({ description: "true or false" })),
    created: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 253_402_300_799, description: "a time in Unix seconds" }),
    ),
    endpoints: Type.Optional(
      Type.Array(EndpointEntry, {
        minItems: 1,
        maxItems: 32,
        description: "a list of 1 to 32 endpoints",
      }),
    ),
    organizations: Type.Optional(Organizations),
  },
  { additionalProperties: false, description: "an object" },
);

/** A name for several models, which are tried in their order. Weights share out the first choice. */
const AliasEntry = Type.Object(
  {
    id: Type.String({ ...ModelName, description: "a name like fast or acme/support-bot" }),
    models: Type.Array(
      Type.Object(
        { id: Text(256), weight: Type.Optional(Weight) },
        { additionalProperties: false, description: "an object" },
      ),
      { minItems: 1, maxItems: 32, description: "a list of 1 to 32 models" },
    ),
    /** The organization that the alias is for. Absent: all. */
    organization_id: Type.Optional(OrganizationId),
    description: Type.Optional(Text(4096)),
  },
  { additionalProperties: false, description: "an object" },
);

/** Prices of a model that replace all others from a time on. */
const PriceEntry = Type.Object(
  {
    id: Id,
    model: Text(256),
    /** The provider whose endpoint has the prices. Absent: all endpoints of the model. */
    provider: Type.Optional(Id),
    pricing: Type.Object(
      { ...pricing, ...tuningPrices },
      {
        additionalProperties: false,
        minProperties: 1,
        description: "an object with at least one price",
      },
    ),
    /** The time from which the prices apply. Absent: always. */
    valid_from: Type.Optional(
      Type.String({ format: "date-time", description: "a time like 2026-01-31T00:00:00Z" }),
    ),
  },
  { additionalProperties: false, description: "an object" },
);

const ConfigFile = Type.Object(
  {
    $schema: Type.Optional(Text(2048)),
    providers: Type.Optional(
      Type.Array(ProviderEntry, {
        maxItems: 1000,
        description: "a list of at most 1000 providers",
      }),
    ),
    models: Type.Optional(
      Type.Array(ModelEntry, { maxItems: 10_000, description: "a list of at most 10000 models" }),
    ),
    aliases: Type.Optional(
      Type.Array(AliasEntry, { maxItems: 1000, description: "a list of at most 1000 aliases" }),
    ),
    prices: Type.Optional(
      Type.Array(PriceEntry, { maxItems: 10_000, description: "a list of at most 10000 prices" }),
    ),
    sandbox: Type.Optional(Type.Boolean({ description: "true or false" })),
  },
  { additionalProperties: false, description: "an object" },
);

export type ProviderEntry = Type.Static<typeof ProviderEntry>;
export type ModelEntry = Type.Static<typeof ModelEntry>;
export type AliasEntry = Type.Static<typeof AliasEntry>;
export type PriceEntry = Type.Static<typeof PriceEntry>;
export type ConfigFile = Type.Static<typeof ConfigFile>;

/** The schemas of the entries, by kind. */
export const ENTRY_SCHEMAS = {
  provider: ProviderEntry,
  model: ModelEntry,
  alias: AliasEntry,
  price: PriceEntry,
};

/** Returns the schema of the file for editors: JSON Schema, with all types of providers. */
export function publishedFileSchema(): object {
  const schema = structuredClone(ConfigFile) as unknown as {
    properties: { providers: { items: { properties: { type: object } } } };
  };
  schema.properties.providers.items.properties.type = {
    type: "string",
    enum: Object.keys(PROVIDER_TYPES),
    description: "the type of the provider, which selects its adapter",
  };
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Configuration file of the model gateway",
    ...schema,
  };
}

/**
 * Returns the validator of the file. It is compiled only if there is a file to check, because
 * compiling takes some milliseconds of the start.
 */
export function compileConfigFile() {
  return Compile(ConfigFile);
}
