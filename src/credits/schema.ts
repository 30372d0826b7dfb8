import { Type } from "typebox";

const MAX_PAGE = 200;
const transactionType = Type.Enum(["topup", "usage", "refund", "adjustment"]);
const ofUsage = { description: "Of usage only" };

export const transactionsQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    type: Type.Optional(transactionType),
    start_date: Type.Optional(Type.String({ maxLength: 64, description: "ISO 8601, inclusive" })),
    end_date: Type.Optional(
      Type.String({
        maxLength: 64,
        description: "ISO 8601; a date without a time means its whole day",
      }),
    ),
  },
  { additionalProperties: false },
);

export const balance = Type.Object({
  balance_usd: Type.Number(),
  lifetime_spend_usd: Type.Number(),
  auto_replenish: Type.Boolean(),
  replenish_amount_usd: Type.Number(),
  replenish_threshold_usd: Type.Number(),
});

const nullableInteger = (description: string) =>
  Type.Union([Type.Integer(), Type.Null()], { description });
const nullableString = Type.Union([Type.String(), Type.Null()]);
const nullableObject = Type.Union([Type.Object({}), Type.Null()]);

/** Present where it is above zero. */
function usedCount(description: string) {
  return Type.Optional(Type.Integer({ description }));
}

const transactionDetails = Type.Object(
  {
    status: nullableInteger("HTTP status of the answer; 499 where the client went away"),
    latency_ms: nullableInteger("From the request to the end of its answer"),
    cached_tokens: nullableInteger("Prompt tokens read from the provider's cache"),
    reasoning_tokens: nullableInteger("Completion tokens that are reasoning"),
    cache_write_tokens: usedCount("Prompt tokens written to the provider's cache"),
    cache_write_1h_tokens: usedCount("Of these, tokens that the cache keeps for an hour"),
    audio_prompt_tokens: usedCount("Prompt tokens of sound that were not read from a cache"),
    image_prompt_tokens: usedCount("Prompt tokens of images that were not read from a cache"),
    cached_audio_prompt_tokens: usedCount("Cached prompt tokens of sound"),
    cached_image_prompt_tokens: usedCount("Cached prompt tokens of images"),
    audio_completion_tokens: usedCount("Completion tokens of sound"),
    image_completion_tokens: usedCount("Completion tokens of images"),
    images: usedCount("Images that were made"),
    characters: usedCount("Characters that were spoken"),
    seconds: Type.Optional(Type.Number({ description: "Seconds of sound" })),
    web_searches: usedCount("Searches of the web"),
    file_searches: usedCount("Searches of files"),
    user: nullableString,
    session_id: nullableString,
    trace: nullableObject,
    metadata: nullableObject,
    omitted: Type.Optional(
      Type.Boolean({
        description:
          "true where trace and metadata are left out because those of the page take more than 1 MB; ask for fewer transactions",
      }),
    ),
  },
  { description: "Of usage only: what the request recorded, and how it ended" },
);

export const transactionList = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      type: transactionType,
      amount_usd: Type.Number(),
      balance_after_usd: Type.Number(),
      description: Type.String(),
      model: Type.Optional(Type.String(ofUsage)),
      request_id: Type.Optional(Type.String(ofUsage)),
      key_id: Type.Optional(Type.Union([Type.String(), Type.Null()], ofUsage)),
      provider: Type.Optional(Type.Union([Type.String(), Type.Null()], ofUsage)),
      prompt_tokens: Type.Optional(Type.Union([Type.Integer(), Type.Null()], ofUsage)),
      completion_tokens: Type.Optional(Type.Union([Type.Integer(), Type.Null()], ofUsage)),
      estimated: Type.Optional(
        Type.Union([Type.Boolean(), Type.Null()], {
          description: "Of usage only: its tokens were counted by the gateway",
        }),
      ),
      details: Type.Optional(transactionDetails),
      created_at: Type.String(),
    }),
  ),
  total: Type.Integer(),
  has_more: Type.Boolean(),
});
