import { Type } from "typebox";
import { jsonResponse } from "../http/error-response.ts";
import {
  type Access,
  nullable,
  optional,
  organizationOf,
  pageFields,
  type RouteDefinition,
  route,
} from "../http/route.ts";
import { ALL_EVENTS, EVENT_TYPES } from "../lib/events/event-types.ts";
import { isoTime } from "../lib/utc-time.ts";
import type { AttemptRecord, WebhookRecord } from "../lib/webhook-record.ts";
import type { NamedDelivery, QueuedDelivery, Webhooks } from "./webhooks.ts";

const MAX_URL_CHARACTERS = 2_048;
const MAX_DESCRIPTION_CHARACTERS = 1_000;
const MIN_SECRET_CHARACTERS = 16;
const MAX_SECRET_CHARACTERS = 256;
const MAX_PAGE = 1_000;

const url = Type.String({
  minLength: 1,
  maxLength: MAX_URL_CHARACTERS,
  description: "A public HTTPS URL.",
});
const events = Type.Array(Type.Enum([...EVENT_TYPES, ALL_EVENTS]), {
  minItems: 1,
  maxItems: EVENT_TYPES.length + 1,
  uniqueItems: true,
  description: "Event types; `*` means all.",
});
const description = optional(Type.String({ maxLength: MAX_DESCRIPTION_CHARACTERS }));

const createWebhookBody = Type.Object(
  {
    url,
    events,
    secret: optional(
      Type.String({
        minLength: MIN_SECRET_CHARACTERS,
        maxLength: MAX_SECRET_CHARACTERS,
        description:
          "Signing secret. Generated if omitted. A custom secret must be long and random.",
      }),
    ),
    description,
    enabled: Type.Optional(Type.Boolean({ default: true })),
  },
  {
    additionalProperties: false,
  },
);

const changeWebhookBody = Type.Object(
  {
    url: Type.Optional(url),
    events: Type.Optional(events),
    description,
    enabled: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);

const testWebhookBody = Type.Object(
  {
    type: Type.Optional(
      Type.Enum([...EVENT_TYPES], {
        description: "Event type to send. Default: the first type that the webhook subscribes to.",
      }),
    ),
  },
  { additionalProperties: false },
);

const listWebhooksQuery = Type.Object(pageFields(MAX_PAGE), { additionalProperties: false });

const deliveryStatus = Type.Enum(["pending", "delivered", "failed", "dropped"], {
  title: "WebhookDeliveryStatus",
});

const listDeliveriesQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 50 })),
    after: Type.Optional(
      Type.String({ maxLength: 64, description: "Id of the last delivery of the previous page." }),
    ),
    status: Type.Optional(deliveryStatus),
  },
  { additionalProperties: false },
);

const shared = {
  id: Type.String(),
  url: Type.String(),
  events: Type.Array(Type.String()),
  description: nullable(Type.String()),
  enabled: Type.Boolean(),
  created_at: Type.String({ description: "ISO 8601." }),
  disabled_at: nullable(Type.String({ description: "ISO 8601." })),
  disabled_by: nullable(
    Type.Enum(["request", "failures"], {
      description: "`failures`: six attempts to deliver one event failed.",
    }),
  ),
};

const webhook = Type.Object(shared, { title: "Webhook" });
const createdWebhook = Type.Object(
  { ...shared, secret: Type.String() },
  { title: "CreatedWebhook" },
);
const rotatedWebhook = Type.Object(
  {
    ...shared,
    secret: Type.String(),
    previous_secret_expires_at: Type.String({
      description: "ISO 8601. Until then both secrets sign.",
    }),
  },
  { title: "RotatedWebhook" },
);
const webhookList = Type.Object(
  { data: Type.Array(webhook), total: Type.Integer() },
  { title: "WebhookList" },
);
const deletedWebhook = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedWebhook" },
);

const sent = {
  event_id: Type.String(),
  delivered: Type.Boolean(),
  status_code: nullable(Type.Integer()),
  latency_ms: Type.Integer(),
  error: nullable(Type.String()),
};
const testedWebhook = Type.Object(sent, { title: "WebhookTestResult" });

const deliveryFields = {
  id: Type.String(),
  event_id: Type.String(),
  event_type: Type.String(),
  status: deliveryStatus,
  attempts: Type.Array(
    Type.Object({
      at: Type.String({ description: "ISO 8601." }),
      status_code: nullable(Type.Integer()),
      error: nullable(Type.String()),
      latency_ms: Type.Integer(),
    }),
  ),
  next_attempt_at: nullable(Type.String({ description: "ISO 8601." })),
  created_at: Type.String({ description: "ISO 8601." }),
};
const listedDelivery = Type.Object(
  {
    ...deliveryFields,
    waits_behind: nullable(
      Type.Object(
        {
          id: Type.String(),
          event_id: Type.String(),
          event_type: Type.String(),
          attempts: Type.Integer({ description: "Attempts so far." }),
          next_attempt_at: nullable(Type.String({ description: "ISO 8601." })),
        },
        { description: "The earlier delivery of this webhook that must end first." },
      ),
    ),
  },
  { title: "WebhookDelivery" },
);
const deliveryList = Type.Object(
  {
    data: Type.Array(listedDelivery),
    has_more: Type.Boolean(),
  },
  { title: "WebhookDeliveryList" },
);
const redelivery = Type.Object({ ...deliveryFields, ...sent }, { title: "WebhookRedelivery" });

const access: Access = { kind: "administration", scope: "webhooks:manage" };
const tag = "Webhooks";
const DEFAULT_PAGE = 50;

/** The routes of webhooks and their deliveries (spec 4.11). */
export function webhookRoutes(webhooks: Webhooks): RouteDefinition[] {
  return [
    ...collectionRoutes(webhooks),
    ...settingRoutes(webhooks),
    secretRoute(webhooks),
    ...deliveryRoutes(webhooks),
  ];
}

function collectionRoutes(webhooks: Webhooks): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/webhooks",
      tag,
      operationId: "webhooks.create",
      summary: "Create a webhook",
      access,
      body: createWebhookBody,
      sendsEventsTo: "{$request.body#/url}",
      responses: {
        201: {
          description: "The webhook with its secret, which is shown only once.",
          schema: createdWebhook,
        },
      },
      async handle(context) {
        const body = context.body;
        const { record, secret } = await webhooks.create(
          organizationOf(context),
          {
            url: body.url,
            events: body.events,
            description: body.description ?? null,
            enabled: body.enabled ?? true,
            secret: body.secret ?? undefined,
          },
          context.author,
        );
        return jsonResponse({ ...webhookShape(record), secret }, 201);
      },
    }),
    route({
      method: "GET",
      path: "/v1/webhooks",
      tag,
      operationId: "webhooks.list",
      summary: "List webhooks",
      access,
      query: listWebhooksQuery,
      responses: {
        200: { description: "Webhooks, newest first, without secrets.", schema: webhookList },
      },
      async handle(context) {
        const query = context.query;
        const page = { limit: query.limit ?? DEFAULT_PAGE, offset: query.offset ?? 0 };
        const listed = await webhooks.list(organizationOf(context), page);
        return jsonResponse({ data: listed.webhooks.map(webhookShape), total: listed.total });
      },
    }),
  ];
}

function settingRoutes(webhooks: Webhooks): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/webhooks/:id",
      tag,
      operationId: "webhooks.retrieve",
      summary: "Retrieve a webhook",
      access,
      responses: {
        200: { description: "The webhook, without its secret.", schema: webhook },
      },
      async handle(context) {
        return jsonResponse(
          webhookShape(await webhooks.find(organizationOf(context), context.params.id)),
        );
      },
    }),
    route({
      method: "PATCH",
      path: "/v1/webhooks/:id",
      tag,
      operationId: "webhooks.update",
      summary: "Update a webhook",
      description: "A webhook that is enabled again receives its pending events.",
      access,
      body: changeWebhookBody,
      responses: { 200: { description: "The updated webhook.", schema: webhook } },
      async handle(context) {
        const changed = context.body;
        const organizationId = organizationOf(context);
        const record = await webhooks.change(
          organizationId,
          context.params.id,
          changed,
          context.author,
        );
        return jsonResponse(webhookShape(record));
      },
    }),
    route({
      method: "DELETE",
      path: "/v1/webhooks/:id",
      tag,
      operationId: "webhooks.delete",
      summary: "Delete a webhook",
      access,
      responses: { 200: { description: "The webhook was deleted.", schema: deletedWebhook } },
      async handle(context) {
        await webhooks.remove(organizationOf(context), context.params.id, context.author);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    }),
  ];
}

function secretRoute(webhooks: Webhooks): RouteDefinition {
  return route({
    method: "POST",
    path: "/v1/webhooks/:id/rotate_secret",
    tag,
    operationId: "webhooks.rotate_secret",
    summary: "Rotate a webhook's secret",
    description: "The previous secret also signs for 24 hours.",
    access,
    responses: {
      200: {
        description: "The webhook with its new secret, which is shown only once.",
        schema: rotatedWebhook,
      },
    },
    async handle(context) {
      const { record, secret, previousUntilMs } = await webhooks.rotateSecret(
        organizationOf(context),
        context.params.id,
        context.author,
      );
      const expiresAt = isoTime(previousUntilMs);
      return jsonResponse({
        ...webhookShape(record),
        secret,
        previous_secret_expires_at: expiresAt,
      });
    },
  });
}

function deliveryRoutes(webhooks: Webhooks): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/webhooks/:id/test",
      tag,
      operationId: "webhooks.test",
      summary: "Send a test event",
      description: "The data of the event contains `test: true`.",
      access,
      body: testWebhookBody,
      bodyIsOptional: true,
      responses: { 200: { description: "The result of the attempt.", schema: testedWebhook } },
      async handle(context) {
        const { type } = context.body;
        const organizationId = organizationOf(context);
        const { eventId, attempt } = await webhooks.test(organizationId, context.params.id, type);
        return jsonResponse(sentShape(eventId, attempt));
      },
    }),
    route({
      method: "GET",
      path: "/v1/webhooks/:id/deliveries",
      tag,
      operationId: "webhooks.deliveries.list",
      summary: "List a webhook's deliveries of the last 30 days",
      access,
      query: listDeliveriesQuery,
      responses: { 200: { description: "Deliveries, newest first.", schema: deliveryList } },
      async handle(context) {
        const query = context.query;
        const limit = query.limit ?? DEFAULT_PAGE;
        const deliveries = await webhooks.deliveries(organizationOf(context), context.params.id, {
          limit,
          after: query.after,
          status: query.status,
        });
        const data = deliveries.slice(0, limit).map(queuedShape);
        return jsonResponse({ data, has_more: deliveries.length > limit });
      },
    }),
    route({
      method: "POST",
      path: "/v1/webhooks/:id/deliveries/:delivery_id/redeliver",
      tag,
      operationId: "webhooks.redeliver",
      summary: "Redeliver an event",
      description: "The gateway sends the event immediately, outside the order.",
      access,
      responses: {
        200: { description: "The delivery and the result of the attempt.", schema: redelivery },
      },
      async handle(context) {
        const { delivery, attempt } = await webhooks.redeliver(
          organizationOf(context),
          context.params.id,
          context.params.delivery_id,
          context.author,
        );
        return jsonResponse({
          ...deliveryShape(delivery),
          ...sentShape(delivery.eventId, attempt),
        });
      },
    }),
  ];
}

/** Returns a webhook as the API shows it, without its secret. */
function webhookShape(record: WebhookRecord) {
  return {
    id: record.id,
    url: record.url,
    events: record.events,
    description: record.description,
    enabled: record.enabled,
    created_at: isoTime(record.createdAtMs),
    disabled_at: record.disabledAtMs === null ? null : isoTime(record.disabledAtMs),
    disabled_by: record.disabledBy,
  };
}

function deliveryShape(delivery: NamedDelivery) {
  const { nextAttemptAtMs } = delivery;
  return {
    id: delivery.id,
    event_id: delivery.eventId,
    event_type: delivery.eventType,
    status: delivery.status,
    attempts: delivery.attempts,
    next_attempt_at: nextAttemptAtMs === null ? null : isoTime(nextAttemptAtMs),
    created_at: isoTime(delivery.createdAtMs),
  };
}

function queuedShape({ waitsBehind, ...delivery }: QueuedDelivery) {
  const head = waitsBehind && deliveryShape(waitsBehind);
  return {
    ...deliveryShape(delivery),
    waits_behind: head
      ? {
          id: head.id,
          event_id: head.event_id,
          event_type: head.event_type,
          attempts: head.attempts.length,
          next_attempt_at: head.next_attempt_at,
        }
      : null,
  };
}

/** Returns the result of an attempt that a request started. */
function sentShape(eventId: string, attempt: AttemptRecord) {
  return {
    event_id: eventId,
    delivered: attempt.error === null,
    status_code: attempt.status_code,
    latency_ms: attempt.latency_ms,
    error: attempt.error,
  };
}
