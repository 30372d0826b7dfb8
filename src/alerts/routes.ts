import { Type } from "typebox";
import type { AlertChannel } from "../../db/queries/alert-channels.ts";
import { jsonResponse } from "../http/error-response.ts";
import {
  type Access,
  nullable,
  organizationOf,
  pageFields,
  type RouteDefinition,
  route,
} from "../http/route.ts";
import { ALERT_KIND_NAMES, CHAT_TYPES } from "../lib/alerts.ts";
import { isoTime } from "../lib/utc-time.ts";
import type { AlertChannels } from "./alert-channels.ts";
import type { SentAlert } from "./send-alerts.ts";

const MAX_URL_CHARACTERS = 2_048;
const MAX_NAME_CHARACTERS = 100;
const MAX_PAGE = 1_000;
const DEFAULT_PAGE = 50;

const name = Type.String({
  minLength: 1,
  maxLength: MAX_NAME_CHARACTERS,
  pattern: "^[^\\x00-\\x1f]+$",
});
const url = Type.String({
  minLength: 1,
  maxLength: MAX_URL_CHARACTERS,
  description: "URL of the incoming webhook. It is never shown again.",
});
const alerts = Type.Array(Type.Enum([...ALERT_KIND_NAMES]), {
  minItems: 1,
  maxItems: ALERT_KIND_NAMES.length,
  uniqueItems: true,
  description: "Kinds of alerts.",
});

const createBody = Type.Object(
  {
    name,
    type: Type.Enum([...CHAT_TYPES], { description: "The service of the webhook." }),
    url,
    alerts,
    enabled: Type.Optional(Type.Boolean({ default: true })),
  },
  { additionalProperties: false },
);

const changeBody = Type.Object(
  {
    name: Type.Optional(name),
    url: Type.Optional(url),
    alerts: Type.Optional(alerts),
    enabled: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);

const iso = (description: string) =>
  nullable(Type.String({ description: `ISO 8601. ${description}` }));

/** Fields with the outcome of the last messages, which a member's mail has too. */
const outcome = {
  enabled: Type.Boolean(),
  disabled_at: iso("Null if it is enabled."),
  disabled_by: nullable(
    Type.Enum(["request", "failures"], {
      description:
        "`failures`: six attempts in a row failed, or the service has deleted the webhook.",
    }),
  ),
  last_sent_at: iso("Time of the last message that was accepted."),
  last_failed_at: iso("Time of the last attempt that failed."),
  last_error: nullable(Type.String({ description: "Null after a success." })),
};

const channel = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    type: Type.Enum([...CHAT_TYPES]),
    host: Type.String({ description: "Host of the URL." }),
    alerts: Type.Array(Type.Enum([...ALERT_KIND_NAMES])),
    created_at: Type.String({ description: "ISO 8601." }),
    ...outcome,
  },
  { title: "AlertChannel" },
);
const channelList = Type.Object(
  { data: Type.Array(channel), total: Type.Integer() },
  { title: "AlertChannelList" },
);
const deleted = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedAlertChannel" },
);
const tested = Type.Object(
  {
    delivered: Type.Boolean(),
    status_code: nullable(Type.Integer()),
    latency_ms: Type.Integer(),
    error: nullable(Type.String()),
  },
  { title: "AlertTestResult" },
);

const access: Access = { kind: "administration", scope: "webhooks:manage" };
const tag = "Alert channels";

/** The routes of an organization's channels for alerts. */
export function alertChannelRoutes(channels: AlertChannels): RouteDefinition[] {
  return [...collectionRoutes(channels), ...channelRoutes(channels)];
}

function collectionRoutes(channels: AlertChannels): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/alert_channels",
      tag,
      operationId: "alert_channels.create",
      summary: "Create an alert channel",
      access,
      body: createBody,
      responses: { 201: { description: "The channel, without its URL.", schema: channel } },
      async handle(context) {
        const { enabled = true, ...settings } = context.body;
        const created = await channels.create(
          organizationOf(context),
          { ...settings, enabled },
          context.author,
        );
        return jsonResponse(channelShape(created), 201);
      },
    }),
    route({
      method: "GET",
      path: "/v1/alert_channels",
      tag,
      operationId: "alert_channels.list",
      summary: "List alert channels",
      access,
      query: Type.Object(pageFields(MAX_PAGE), { additionalProperties: false }),
      responses: { 200: { description: "Channels, newest first.", schema: channelList } },
      async handle(context) {
        const { limit = DEFAULT_PAGE, offset = 0 } = context.query;
        const page = await channels.list(organizationOf(context), { limit, offset });
        return jsonResponse({ data: page.channels.map(channelShape), total: page.total });
      },
    }),
  ];
}

function channelRoutes(channels: AlertChannels): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/alert_channels/:id",
      tag,
      operationId: "alert_channels.retrieve",
      summary: "Retrieve an alert channel",
      access,
      responses: { 200: { description: "The channel, without its URL.", schema: channel } },
      async handle(context) {
        return jsonResponse(
          channelShape(await channels.find(organizationOf(context), context.params.id)),
        );
      },
    }),
    route({
      method: "PATCH",
      path: "/v1/alert_channels/:id",
      tag,
      operationId: "alert_channels.update",
      summary: "Update an alert channel",
      description:
        "A channel that is enabled again gets the alerts of the last three days that wait for it.",
      access,
      body: changeBody,
      responses: { 200: { description: "The updated channel.", schema: channel } },
      async handle(context) {
        const { params, body, author } = context;
        const changed = await channels.change(organizationOf(context), params.id, body, author);
        return jsonResponse(channelShape(changed));
      },
    }),
    route({
      method: "DELETE",
      path: "/v1/alert_channels/:id",
      tag,
      operationId: "alert_channels.delete",
      summary: "Delete an alert channel",
      access,
      responses: { 200: { description: "The channel was deleted.", schema: deleted } },
      async handle(context) {
        await channels.remove(organizationOf(context), context.params.id, context.author);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    }),
    route({
      method: "POST",
      path: "/v1/alert_channels/:id/test",
      tag,
      operationId: "alert_channels.test",
      summary: "Send a test alert",
      description: "At most once in 10 seconds, also to a disabled channel.",
      access,
      responses: { 200: { description: "The result of the attempt.", schema: tested } },
      async handle(context) {
        const sent = await channels.test(organizationOf(context), context.params.id);
        return jsonResponse(testShape(sent));
      },
    }),
  ];
}

/** Returns a channel as the API shows it, without its URL. */
function channelShape(record: AlertChannel) {
  const { id, name: title, type, host } = record;
  return {
    ...{ id, name: title, type, host },
    alerts: record.alerts,
    created_at: isoTime(record.createdAtMs),
    ...outcomeShape(record),
  };
}

/** Returns the state of a channel, and the outcome of its last messages. */
export function outcomeShape(record: AlertChannel) {
  const time = (ms: number | null) => (ms === null ? null : isoTime(ms));
  return {
    enabled: record.enabled,
    disabled_at: time(record.disabledAtMs),
    disabled_by: record.disabledBy,
    last_sent_at: time(record.lastSentAtMs),
    last_failed_at: time(record.lastFailedAtMs),
    last_error: record.lastError,
  };
}

export function testShape({ error, statusCode, latencyMs }: SentAlert) {
  return { delivered: error === null, status_code: statusCode, latency_ms: latencyMs, error };
}
