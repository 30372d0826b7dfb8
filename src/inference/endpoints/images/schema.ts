import { Type } from "typebox";
import { optional } from "../../../http/route.ts";
import { fallbackModels, providerPreferences } from "../../call/routing/preferences.ts";

/** The longest prompt of any model. Most models accept less. */
const MAX_PROMPT_CHARACTERS = 32_000;
/** The most images of any model (spec 8). Many make fewer per request. */
const MAX_IMAGES = 10;
const MAX_PARTIAL_IMAGES = 3;
const MAX_PERCENT = 100;

const prompt = Type.String({
  minLength: 1,
  maxLength: MAX_PROMPT_CHARACTERS,
  description: "The maximum length depends on the model: 1,000 to 32,000 characters.",
});

/** Fields of all image requests. */
const common = {
  model: optional(Type.String()),
  n: optional(Type.Integer({ minimum: 1, maximum: MAX_IMAGES, default: 1 })),
  size: optional(
    Type.String({
      pattern: "^(?:auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4})$",
      description: "Width and height in pixels, such as 1024x1024, or auto.",
    }),
  ),
  response_format: optional(
    Type.Enum(["url", "b64_json"], {
      description:
        "Default: url, or both for GPT Image models. Links are valid for one hour. A stream contains b64_json.",
    }),
  ),
  user: optional(Type.String({ maxLength: 512 })),
  models: optional(fallbackModels),
  provider: optional(providerPreferences),
  route_explain: optional(Type.Boolean()),
  session_id: optional(Type.String({ maxLength: 256 })),
  trace: optional(Type.Object({})),
  metadata: optional(Type.Object({})),
  guardrail: optional(Type.String()),
};

/** Fields of requests with a prompt. */
const prompted = {
  prompt,
  ...common,
  quality: optional(Type.Enum(["standard", "hd", "low", "medium", "high", "auto"])),
  background: optional(Type.Enum(["transparent", "opaque", "auto"])),
  output_format: optional(Type.Enum(["png", "jpeg", "webp"])),
  output_compression: optional(Type.Integer({ minimum: 0, maximum: MAX_PERCENT })),
  stream: optional(Type.Boolean()),
  partial_images: optional(Type.Integer({ minimum: 0, maximum: MAX_PARTIAL_IMAGES })),
  negative_prompt: optional(Type.String({ maxLength: MAX_PROMPT_CHARACTERS })),
  seed: optional(Type.Integer()),
  aspect_ratio: optional(
    Type.String({
      pattern: "^(?:auto|[1-9][0-9]{0,2}:[1-9][0-9]{0,2})$",
      description: "For example 1:1, 16:9 or 4:3.",
    }),
  ),
};

/** The body of POST /v1/images/generations (spec 4.8, and OpenAI's current API). */
export const generationBody = Type.Object({
  ...prompted,
  style: optional(
    Type.Enum(["vivid", "natural"], {
      description: "The default is vivid. Ignored for models without styles.",
    }),
  ),
  moderation: optional(Type.Enum(["low", "auto"])),
});

/** The fields of POST /v1/images/edits, without its files. */
export const editFields = Type.Object({
  ...prompted,
  input_fidelity: optional(Type.Enum(["high", "low"])),
});

/** The fields of POST /v1/images/variations, without its file. */
export const variationFields = Type.Object(common);

/** Fields that only the gateway uses, or that a provider receives in another form. */
export const GATEWAY_FIELDS: ReadonlySet<string> = new Set([
  "model",
  "models",
  "prompt",
  "response_format",
  "provider",
  "route_explain",
  "session_id",
  "trace",
  "metadata",
  "guardrail",
  "stream",
  "__proto__",
]);

/** Fields that have their own member in an ImageCall. */
export const CALL_FIELDS: ReadonlySet<string> = new Set([
  "n",
  "size",
  "aspect_ratio",
  "quality",
  "style",
  "negative_prompt",
  "seed",
  "background",
  "output_format",
  "output_compression",
  "moderation",
  "input_fidelity",
  "partial_images",
]);

const usage = Type.Object(
  {
    input_tokens: Type.Integer(),
    output_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
    input_tokens_details: Type.Object({
      text_tokens: Type.Integer(),
      image_tokens: Type.Integer(),
    }),
    images: Type.Integer({ description: "Number of generated images." }),
    cost: Type.Number({ description: "USD." }),
  },
  { title: "ImageUsage" },
);

/** Facts about the images, as far as the provider states them. */
const facts = {
  size: Type.Optional(Type.String()),
  quality: Type.Optional(Type.String()),
  background: Type.Optional(Type.String()),
  output_format: Type.Optional(Type.String()),
};

/** The images of an answer (spec 2.7). */
export const imagesAnswer = Type.Object(
  {
    created: Type.Integer({ description: "Unix seconds." }),
    data: Type.Array(
      Type.Object({
        url: Type.Optional(Type.String({ description: "Valid for one hour, without an API key." })),
        b64_json: Type.Optional(Type.String()),
        revised_prompt: Type.Optional(Type.String()),
      }),
    ),
    ...facts,
    usage,
  },
  { title: "Images" },
);

/** An event of a stream. */
export const imageEvent = Type.Object(
  {
    type: Type.Enum([
      "image_generation.partial_image",
      "image_generation.completed",
      "image_edit.partial_image",
      "image_edit.completed",
    ]),
    b64_json: Type.String(),
    created_at: Type.Integer({ description: "Unix seconds." }),
    ...facts,
    partial_image_index: Type.Optional(Type.Integer()),
    usage: Type.Optional(usage),
  },
  { title: "ImageEvent" },
);
