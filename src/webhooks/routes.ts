import type { EventType } from "../events/event-types.ts";
import { jsonResponse } from "../http/error-response.ts";
import type { Access, RequestContext, RouteDefinition } from "../http/route.ts";
import { isoTime } from "../lib/iso-time.ts";
import type {
  AttemptRecord,
  DeliveryStatus,
  WebhookRecord,
  WebhookSettings,
} from "../lib/webhook-record.ts";
import * as schema from "./schema.ts";
import type { NamedDelivery, Webhooks } from "./webhooks.ts";

const access: Access = { kind: "administration", scope: "webhooks:manage" };
/** Events tell of other keys, so a limited key subscribes to none. */
const unlimited: Access = { ...access, refusesLimitedKeys: true };
const tag = "Webhooks";
const DEFAULT_PAGE = 50;

type CreateBody = Pick<WebhookSettings, "url" | "events"> &
  Partial<WebhookSettings> & { readonly secret?: string | null };

/** Webhooks and their deliveries (spec 4.11). */
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
    {
      method: "POST",
      path: "/v1/webhooks",
      tag,
      summary: "Create a webhook",
      access: unlimited,
      body: schema.createWebhookBody,
      responses: {
        201: {
          description: "The webhook, with its secret this once",
          schema: schema.createdWebhook,
        },
      },
      async handle(context) {
        const body = context.body as CreateBody;
        const { record, secret } = await webhooks.create(organizationOf(context), {
          url: body.url,
          events: body.events,
          description: body.description ?? null,
          enabled: body.enabled ?? true,
          secret: body.secret ?? undefined,
        });
        return jsonResponse({ ...webhookShape(record), secret }, 201);
      },
    },
    {
      method: "GET",
      path: "/v1/webhooks",
      tag,
      summary: "List the organization's webhooks",
      access,
      query: schema.listWebhooksQuery,
      responses: {
        200: { description: "Webhooks, newest first, without secrets", schema: schema.webhookList },
      },
      async handle(context) {
        const query = context.query as { limit?: number; offset?: number };
        const page = { limit: query.limit ?? DEFAULT_PAGE, offset: query.offset ?? 0 };
        const listed = await webhooks.list(organizationOf(context), page);
        return jsonResponse({ data: listed.webhooks.map(webhookShape), total: listed.total });
      },
    },
  ];
}

function settingRoutes(webhooks: Webhooks): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/webhooks/:id",
      tag,
      summary: "Retrieve a webhook",
      access,
      responses: {
        200: { description: "The webhook, without its secret", schema: schema.webhook },
      },
      async handle(context) {
        return jsonResponse(
          webhookShape(await webhooks.find(organizationOf(context), context.params.id!)),
        );
      },
    },
    {
      method: "PATCH",
      path: "/v1/webhooks/:id",
      tag,
      summary: "Change a webhook; enabled again it gets what was kept for it",
      access: unlimited,
      body: schema.changeWebhookBody,
      responses: { 200: { description: "The webhook as it now stands", schema: schema.webhook } },
      async handle(context) {
        const changed = context.body as Partial<WebhookSettings>;
        const organizationId = organizationOf(context);
        const record = await webhooks.change(organizationId, context.params.id!, changed);
        return jsonResponse(webhookShape(record));
      },
    },
    {
      method: "DELETE",
      path: "/v1/webhooks/:id",
      tag,
      summary: "Delete a webhook; nothing is delivered to it any more",
      access: unlimited,
      responses: { 200: { description: "It is gone", schema: schema.deletedWebhook } },
      async handle(context) {
        await webhooks.remove(organizationOf(context), context.params.id!);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    },
  ];
}

function secretRoute(webhooks: Webhooks): RouteDefinition {
  return {
    method: "POST",
    path: "/v1/webhooks/:id/rotate_secret",
    tag,
    summary: "Make a new secret; the one before signs too for 24 hours",
    access: unlimited,
    responses: {
      200: {
        description: "The webhook, with its new secret this once",
        schema: schema.rotatedWebhook,
      },
    },
    async handle(context) {
      const { record, secret, previousUntilMs } = await webhooks.rotateSecret(
        organizationOf(context),
        context.params.id!,
      );
      const expiresAt = isoTime(previousUntilMs);
      return jsonResponse({
        ...webhookShape(record),
        secret,
        previous_secret_expires_at: expiresAt,
      });
    },
  };
}

function deliveryRoutes(webhooks: Webhooks): RouteDefinition[] {
  return [
    {
      method: "POST",
      path: "/v1/webhooks/:id/test",
      tag,
      summary: "Send a made-up event, with test: true in its data",
      access: unlimited,
      body: schema.testWebhookBody,
      responses: { 200: { description: "What became of it", schema: schema.testedWebhook } },
      async handle(context) {
        const { type } = context.body as { type: EventType };
        const organizationId = organizationOf(context);
        const { eventId, attempt } = await webhooks.test(organizationId, context.params.id!, type);
        return jsonResponse(sentShape(eventId, attempt));
      },
    },
    {
      method: "GET",
      path: "/v1/webhooks/:id/deliveries",
      tag,
      summary: "List a webhook's deliveries of the last 30 days",
      access,
      query: schema.listDeliveriesQuery,
      responses: { 200: { description: "Deliveries, newest first", schema: schema.deliveryList } },
      async handle(context) {
        const query = context.query as { limit?: number; after?: string; status?: DeliveryStatus };
        const limit = query.limit ?? DEFAULT_PAGE;
        const found = await webhooks.deliveries(organizationOf(context), context.params.id!, {
          limit,
          after: query.after,
          status: query.status,
        });
        const data = found.slice(0, limit).map(deliveryShape);
        return jsonResponse({ data, has_more: found.length > limit });
      },
    },
    {
      method: "POST",
      path: "/v1/webhooks/:id/deliveries/:delivery_id/redeliver",
      tag,
      summary: "Send an event again, at once and outside the order",
      access: unlimited,
      responses: {
        200: { description: "The delivery, and what became of it now", schema: schema.redelivery },
      },
      async handle(context) {
        const { delivery, attempt } = await webhooks.redeliver(
          organizationOf(context),
          context.params.id!,
          context.params.delivery_id!,
        );
        return jsonResponse({
          ...deliveryShape(delivery),
          ...sentShape(delivery.eventId, attempt),
        });
      },
    },
  ];
}

function organizationOf(context: RequestContext): string {
  return context.caller.key.organizationId;
}

/** Never holds a secret. */
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
  };
}

/** What became of one attempt that a request asked for. */
function sentShape(eventId: string, attempt: AttemptRecord) {
  return {
    event_id: eventId,
    delivered: attempt.error === null,
    status_code: attempt.status_code,
    latency_ms: attempt.latency_ms,
    error: attempt.error,
  };
}
