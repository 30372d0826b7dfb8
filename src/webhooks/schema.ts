import { Type } from "typebox";
import { ALL_EVENTS, EVENT_TYPES } from "../events/event-types.ts";

const MAX_URL_CHARACTERS = 2_048;
const MAX_DESCRIPTION_CHARACTERS = 1_000;
const MAX_SECRET_CHARACTERS = 256;
const MAX_PAGE = 1_000;

const url = Type.String({
  minLength: 1,
  maxLength: MAX_URL_CHARACTERS,
  description: "HTTPS address that is public",
});
const events = Type.Array(Type.Enum([...EVENT_TYPES, ALL_EVENTS]), {
  minItems: 1,
  maxItems: EVENT_TYPES.length + 1,
  uniqueItems: true,
  description: "Event types; `*` means all",
});
const description = Type.Union([
  Type.String({ maxLength: MAX_DESCRIPTION_CHARACTERS }),
  Type.Null(),
]);

export const createWebhookBody = Type.Object(
  {
    url,
    events,
    secret: Type.Optional(
      Type.Union([
        Type.String({
          minLength: 1,
          maxLength: MAX_SECRET_CHARACTERS,
          description: "Generated where it is left out, long and random as one should be",
        }),
        Type.Null(),
      ]),
    ),
    description: Type.Optional(description),
    enabled: Type.Optional(Type.Boolean({ default: true })),
  },
  {
    additionalProperties: false,
    examples: [
      { url: "https://example.com/gateway", events: ["budget.threshold", "budget.exhausted"] },
    ],
  },
);

export const changeWebhookBody = Type.Object(
  {
    url: Type.Optional(url),
    events: Type.Optional(events),
    description: Type.Optional(description),
    enabled: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false, examples: [{ enabled: true }] },
);

export const testWebhookBody = Type.Object(
  { type: Type.Enum([...EVENT_TYPES]) },
  { additionalProperties: false, examples: [{ type: "budget.threshold" }] },
);

export const listWebhooksQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  },
  { additionalProperties: false },
);

const deliveryStatus = Type.Enum(["pending", "delivered", "failed", "dropped"]);

export const listDeliveriesQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    after: Type.Optional(
      Type.String({ maxLength: 64, description: "Id of the last delivery of the page before" }),
    ),
    status: Type.Optional(deliveryStatus),
  },
  { additionalProperties: false },
);

const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);

const shared = {
  id: Type.String(),
  url: Type.String(),
  events: Type.Array(Type.String()),
  description: nullable(Type.String()),
  enabled: Type.Boolean(),
  created_at: Type.String({ description: "ISO 8601" }),
  disabled_at: nullable(Type.String({ description: "ISO 8601" })),
  disabled_by: nullable(
    Type.Enum(["request", "failures"], {
      description: "`failures`: six attempts at one event failed",
    }),
  ),
};

export const webhook = Type.Object(shared);
export const createdWebhook = Type.Object({ ...shared, secret: Type.String() });
export const rotatedWebhook = Type.Object({
  ...shared,
  secret: Type.String(),
  previous_secret_expires_at: Type.String({ description: "ISO 8601; until then both sign" }),
});
export const webhookList = Type.Object({ data: Type.Array(webhook), total: Type.Integer() });
export const deletedWebhook = Type.Object({ id: Type.String(), deleted: Type.Literal(true) });

const sent = {
  event_id: Type.String(),
  delivered: Type.Boolean(),
  status_code: nullable(Type.Integer()),
  latency_ms: Type.Integer(),
  error: nullable(Type.String()),
};
export const testedWebhook = Type.Object(sent);

const deliveryShape = {
  id: Type.String(),
  event_id: Type.String(),
  event_type: Type.String(),
  status: deliveryStatus,
  attempts: Type.Array(
    Type.Object({
      at: Type.String({ description: "ISO 8601" }),
      status_code: nullable(Type.Integer()),
      error: nullable(Type.String()),
      latency_ms: Type.Integer(),
    }),
  ),
  next_attempt_at: nullable(Type.String({ description: "ISO 8601" })),
};
export const deliveryList = Type.Object({
  data: Type.Array(Type.Object(deliveryShape)),
  has_more: Type.Boolean(),
});
export const redelivery = Type.Object({ ...deliveryShape, ...sent });
