import type { TSchema } from "typebox";
import { EVENT_DEFINITIONS } from "../lib/events/event-types.ts";
import { isOpenToLimitedKeys } from "./limited-keys.ts";
import type { ModelForm } from "./model-form.ts";
import {
  AUTHENTICATION,
  CALL_HEADERS,
  ERROR_COMPONENTS,
  errorDescription,
  errorReference,
  keyInEitherHeader,
  REQUEST_HEADERS,
  TAGS,
} from "./openapi-components.ts";
import {
  type JsonSchema,
  NamedSchemas,
  pascalCase,
  type SchemaReference,
} from "./openapi-schemas.ts";
import type { ResponseDescription, RouteDefinition } from "./route.ts";

interface DescriptionInfo {
  /** The version of the gateway. */
  readonly version: string;
  /** The examples of each operation, by operation id. */
  readonly examples?: Readonly<Record<string, OperationExamples>>;
}

/** Recorded examples of an operation. */
interface OperationExamples {
  /** The JSON body of a request. */
  readonly request?: unknown;
  /** The fields of a form, with the names of its files. */
  readonly form?: unknown;
  /** The JSON body of the successful answer. */
  readonly response?: unknown;
  /** The data of one event of a stream. */
  readonly event?: unknown;
}

/** The state of one document while it is written. */
interface DocumentDraft {
  readonly schemas: NamedSchemas;
  readonly examples: Readonly<Record<string, OperationExamples>>;
}

const INTRODUCTION = `One HTTP interface, in the conventions of OpenAI's API, in front of many AI providers.

Every request carries an API key as \`Authorization: Bearer <key>\`, or as \`x-api-key: <key>\`. A **secret key** (\`gateway_sk_…\`) calls models, and administrative endpoints whose scope it holds. A **management key** (\`gateway_mgmt_…\`) administers and calls no models.

Errors of every endpoint have one shape, and its \`code\` is stable. Every response carries \`X-Gateway-Request-ID\`.`;

/**
 * Returns the gateway's OpenAPI 3.1 document, generated from the route definitions that serve the
 * requests. If two routes differ only in the names of their parameters, the document describes the
 * first one.
 */
export function openApiDocument(
  routes: readonly RouteDefinition[],
  { version, examples = {} }: DescriptionInfo,
): Record<string, unknown> {
  const draft: DocumentDraft = { schemas: new NamedSchemas(), examples };
  const paths = new Map<string, { path: string; operations: Record<string, unknown> }>();
  for (const route of routes) {
    if (route.operationId === undefined) continue;
    const path = templatedPath(route.path);
    // Two templates that differ only in names are the same path (OpenAPI 3.1 §4.8.8).
    const identity = path.replace(/\{\w+\}/g, "{}");
    const entry = paths.get(identity) ?? { path, operations: {} };
    paths.set(identity, entry);
    entry.operations[route.method.toLowerCase()] ??= describeOperation(route, entry.path, draft);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Model gateway",
      version,
      description: INTRODUCTION,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    security: keyInEitherHeader([]),
    tags: [...new Set([...routes.map((route) => route.tag), EVENTS_TAG])].map((name) => ({
      name,
      ...(name in TAGS && { description: TAGS[name] }),
    })),
    paths: Object.fromEntries(
      [...paths.values()].map(({ path, operations }) => [path, operations]),
    ),
    webhooks: describeEvents(draft),
    components: {
      securitySchemes: AUTHENTICATION,
      ...ERROR_COMPONENTS,
      schemas: { ...ERROR_COMPONENTS.schemas, ...draft.schemas.byName() },
    },
  };
}

const EVENT_UNION = "WebhookEvent";
const EVENTS_TAG = "Webhook events";

/**
 * Returns the descriptions of the requests that a webhook receives, by type of event. Names a
 * schema for each type, and one for all of them.
 */
function describeEvents({ schemas }: DocumentDraft): Record<string, object> {
  const requests: Record<string, object> = {};
  const references: Record<string, SchemaReference> = {};
  for (const { type, summary, payload, sample } of EVENT_DEFINITIONS.values()) {
    const schema = schemas.name(
      eventSchema(type, schemas.describe(payload)),
      `${pascalCase(type)}Event`,
    );
    references[type] = schema;
    const example = { id: "evt_test", type, created_at: "2026-01-01T12:00:00Z", data: sample };
    requests[type] = {
      post: receivedEvent(`webhook_events.${type}`, summary, { schema, example }),
    };
  }
  const mapping = Object.entries(references).map(([type, { $ref }]) => [type, $ref]);
  schemas.name(
    {
      description: "An event that a webhook receives. Its `type` determines the members of `data`.",
      oneOf: Object.values(references),
      discriminator: { propertyName: "type", mapping: Object.fromEntries(mapping) },
    },
    EVENT_UNION,
  );
  return requests;
}

function eventSchema(type: string, payload: JsonSchema): JsonSchema {
  return {
    type: "object",
    required: ["id", "type", "created_at", "data"],
    properties: {
      id: { type: "string", description: "Id of the event, equal in every delivery of it." },
      type: { type: "string", const: type },
      created_at: { type: "string", format: "date-time" },
      data: payload,
    },
  };
}

/** Returns the description of a request that the gateway sends to a webhook. */
function receivedEvent(operationId: string, summary: string, content: object): object {
  return {
    summary,
    operationId,
    tags: [EVENTS_TAG],
    security: [],
    requestBody: { required: true, content: { [JSON_TYPE]: content } },
    responses: {
      "2XX": { description: "The receiver accepted the event." },
      "4XX": {
        description: "The event is dropped. After 408 and 429 it is delivered again later.",
      },
      "5XX": { description: "The event is delivered again later." },
    },
  };
}

/**
 * Returns a path in OpenAPI's syntax. `/v1/keys/:id` becomes `/v1/keys/{id}`, and `/v1/models/*`
 * becomes `/v1/models/{id}`, because ids can contain slashes.
 */
function templatedPath(path: string): string {
  return path.replace(/:(\w+)/g, "{$1}").replace(/\*$/, path.includes(":id") ? "{rest}" : "{id}");
}

const JSON_TYPE = "application/json";
const FORM_TYPE = "multipart/form-data";
const EVENT_STREAM_TYPE = "text/event-stream";
const IDEMPOTENCY_KEY = {
  name: "Idempotency-Key",
  in: "header",
  required: false,
  description:
    "The same key with the same body gets the stored answer for 24 hours, without a second call or charge.",
  schema: { type: "string", minLength: 1, maxLength: 255 },
};

/**
 * Returns the operation object of a route.
 *
 * @param path the path of the route, with its parameters in braces
 */
function describeOperation(route: RouteDefinition, path: string, draft: DocumentDraft): object {
  const isCall = route.access.kind === "model" && (route.body ?? route.modelForm) !== undefined;
  const parameters = [
    ...pathParameters(path),
    ...queryParameters(route, draft),
    ...(route.takesIdempotencyKey ? [IDEMPOTENCY_KEY] : []),
  ];
  const { operationId, description, sendsEventsTo } = route;
  return {
    tags: [route.tag],
    summary: route.summary,
    ...(operationId !== undefined && { operationId }),
    description: [accessText(route), description].filter(Boolean).join(" "),
    security:
      route.access.kind === "public"
        ? []
        : keyInEitherHeader("scope" in route.access ? [route.access.scope] : []),
    ...(parameters.length > 0 && { parameters }),
    ...describeBody(route, draft),
    responses: {
      ...Object.fromEntries(errorStatuses(route, path, isCall).map((s) => [s, errorReference(s)])),
      ...describeResponses(route, isCall ? CALL_HEADERS : REQUEST_HEADERS, draft),
    },
    ...(sendsEventsTo !== undefined && { callbacks: describeCallback(sendsEventsTo) }),
  };
}

/** Returns the request that a webhook's creation leads to, with all types of events. */
function describeCallback(url: string): object {
  const content = { schema: { $ref: `#/components/schemas/${EVENT_UNION}` } };
  const post = receivedEvent(
    "webhook_events.receive",
    "An event that the webhook subscribes to",
    content,
  );
  return { event: { [url]: { post } } };
}

function accessText({ access, method, path }: RouteDefinition): string {
  if (access.kind === "public") return "Needs no API key.";
  if (access.kind === "self") return "Needs a secret key or a management key.";
  if (access.kind === "operator") return "Needs an operator key.";
  if (access.kind === "scim") return "Needs a SCIM token.";
  if (access.kind === "session") return "Needs a session of the dashboard.";
  if (access.kind === "model" || access.kind === "storage") {
    return `Needs a secret key with the scope \`${access.scope}\`.`;
  }
  if (access.kind === "administration" && access.isForManagement) {
    return `Needs a management key with the scope \`${access.scope}\`.`;
  }
  const secret = isOpenToLimitedKeys({ method, path })
    ? "a secret key"
    : "a secret key without limits";
  return `Needs a management key, or ${secret}, with the scope \`${access.scope}\`.`;
}

function pathParameters(path: string): object[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
}

/**
 * Returns the query parameters of a route. Leaves out `include[]`, the other spelling of `include`,
 * because generators make the same identifier of both.
 */
function queryParameters(route: RouteDefinition, { schemas }: DocumentDraft): object[] {
  if (route.query === undefined) return [];
  const { properties = {}, required = [] } = schemas.describe(route.query);
  return Object.entries(properties)
    .filter(([name]) => !name.endsWith("[]"))
    .map(([name, { description, ...schema }]) => ({
      name,
      in: "query",
      required: required.includes(name),
      ...(description !== undefined && { description }),
      schema,
    }));
}

/** Returns the request body of a route: JSON, a form, or either of them. */
function describeBody(route: RouteDefinition, draft: DocumentDraft): object {
  const { schemas, examples } = draft;
  const { body, form, modelForm, allowsUnknownFields = false, operationId } = route;
  const fields =
    modelForm === undefined
      ? form && schemas.describe(form)
      : describeModelForm(modelForm, schemas.describe(modelForm.fields));
  const json = body && schemas.describe(body);
  if (json === undefined && fields === undefined) return {};
  if (json?.type === "object") json.additionalProperties ??= allowsUnknownFields;
  const recorded = examples[operationId ?? ""] ?? {};
  return {
    requestBody: {
      required: route.bodyIsOptional !== true,
      ...(allowsUnknownFields && { description: "Other members are passed on to the provider." }),
      content: {
        ...(json && { [JSON_TYPE]: mediaType(draft, route, json, "Request", recorded.request) }),
        ...(fields && { [FORM_TYPE]: mediaType(draft, route, fields, "Form", recorded.form) }),
      },
    },
  };
}

/** Returns the fields of a form with its files. */
function describeModelForm({ files }: ModelForm, fields: JsonSchema): JsonSchema {
  const { properties = {}, required = [], ...schema } = fields;
  const parts = Object.entries(files).map(([name, { maxFiles, maxBytes, typeNames }]) => {
    const description = `${typeNames[0]!.toUpperCase()}${typeNames.slice(1)}, at most ${maxBytes / 1024 / 1024} MB.`;
    const file = { type: "string", format: "binary", description };
    return [name, maxFiles === 1 ? file : { type: "array", maxItems: maxFiles, items: file }];
  });
  const requiredFiles = Object.keys(files).filter((name) => files[name]!.isRequired);
  return {
    ...schema,
    properties: { ...Object.fromEntries(parts), ...properties },
    required: [...requiredFiles, ...required],
  };
}

/**
 * Returns the media type object of a schema. An object or a union without a title is named after
 * the operation: `KeysCreateRequest`.
 */
function mediaType(
  { schemas }: DocumentDraft,
  { operationId }: RouteDefinition,
  schema: JsonSchema,
  kind: "Request" | "Form" | "Response" | "Event",
  example: unknown,
): object {
  const isNamed = operationId !== undefined && (schema.type === "object" || "anyOf" in schema);
  return {
    schema: isNamed ? schemas.name(schema, `${pascalCase(operationId)}${kind}`) : schema,
    ...(example !== undefined && { example }),
  };
}

/**
 * Returns the error statuses that can occur before a handler runs, and for a model call also the
 * statuses that every model call can have (contract: order of checks).
 */
function errorStatuses(route: RouteDefinition, path: string, isCall: boolean): number[] {
  // Every route rejects unknown query parameters.
  const statuses = [400, 500];
  if (route.access.kind !== "public") statuses.push(401, 403, 503);
  if (path.includes("{")) statuses.push(404);
  if (route.body ?? route.form ?? route.modelForm) statuses.push(413, 415);
  if (isCall) statuses.push(402, 404, 408, 409, 429, 502);
  return [...new Set(statuses)];
}

function describeResponses(
  route: RouteDefinition,
  headers: object,
  draft: DocumentDraft,
): Record<string, object> {
  const responses = Object.entries(route.responses).map(([status, response]) => [
    status,
    Number(status) >= 400 && response.schema === undefined
      ? errorDescription(Number(status), response.description)
      : { description: response.description, headers, ...describeContent(route, response, draft) },
  ]);
  return Object.fromEntries(responses);
}

function describeContent(
  route: RouteDefinition,
  { schema, eventSchema, contentType = schema && JSON_TYPE }: ResponseDescription,
  draft: DocumentDraft,
): object {
  if (contentType === undefined) return {};
  const { schemas } = draft;
  const recorded = draft.examples[route.operationId ?? ""] ?? {};
  const written = (described: TSchema, kind: "Response" | "Event", example: unknown) =>
    mediaType(draft, route, schemas.describe(described), kind, example);
  return {
    content: {
      [contentType]: schema
        ? written(schema, "Response", recorded.response)
        : { schema: contentType.startsWith("text/") ? TEXT : BINARY },
      ...(eventSchema && { [EVENT_STREAM_TYPE]: written(eventSchema, "Event", recorded.event) }),
    },
  };
}

const TEXT = { type: "string" };
const BINARY = { type: "string", format: "binary" };
