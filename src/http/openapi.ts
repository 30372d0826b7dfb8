import type { TSchema } from "typebox";
import type { EventDefinition } from "../lib/events/definition.ts";
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
} from "./openapi-components.ts";
import type { ResponseDescription, RouteDefinition } from "./route.ts";

interface DescriptionInfo {
  /** The version of the gateway. */
  readonly version: string;
}

const INTRODUCTION = `One HTTP interface, in the conventions of OpenAI's API, in front of many AI providers.

Every request carries an API key as \`Authorization: Bearer <key>\`, or as \`x-api-key: <key>\`. A **secret key** (\`gateway_sk_…\`) calls models, and administrative endpoints whose scope it holds; a **management key** (\`gateway_mgmt_…\`) administers and calls no models.

Errors of every endpoint have one shape, and its \`code\` is stable. Every response carries \`X-Gateway-Request-ID\`.`;

/**
 * Returns the gateway's OpenAPI 3.1 document, generated from the route definitions that serve the
 * requests. If two routes differ only in the names of their parameters, the document describes the
 * first one.
 */
export function openApiDocument(
  routes: readonly RouteDefinition[],
  info: DescriptionInfo,
): Record<string, unknown> {
  const paths = new Map<string, { path: string; operations: Record<string, unknown> }>();
  for (const route of routes) {
    const path = templatedPath(route.path);
    // Two templates that differ only in names are the same path (OpenAPI 3.1 §4.8.8).
    const identity = path.replace(/\{\w+\}/g, "{}");
    const entry = paths.get(identity) ?? { path, operations: {} };
    paths.set(identity, entry);
    entry.operations[route.method.toLowerCase()] ??= describeOperation(route, entry.path);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Model gateway",
      version: info.version,
      description: INTRODUCTION,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    security: keyInEitherHeader([]),
    tags: [...new Set(routes.map((route) => route.tag))].map((name) => ({ name })),
    paths: Object.fromEntries(
      [...paths.values()].map(({ path, operations }) => [path, operations]),
    ),
    webhooks: Object.fromEntries(
      [...EVENT_DEFINITIONS.values()].map((event) => [event.type, { post: describeEvent(event) }]),
    ),
    components: { securitySchemes: AUTHENTICATION, ...ERROR_COMPONENTS },
  };
}

/** Returns the description of the request that a webhook receives for an event. */
function describeEvent({ type, summary, payload, sample }: EventDefinition): object {
  return {
    summary,
    tags: ["Webhooks"],
    requestBody: {
      content: {
        "application/json": {
          schema: {
            type: "object",
            required: ["id", "type", "created_at", "data"],
            properties: {
              id: { type: "string" },
              type: { const: type },
              created_at: { type: "string", format: "date-time" },
              data: payload,
            },
          },
          example: { id: "evt_test", type, created_at: "2026-01-01T12:00:00Z", data: sample },
        },
      },
    },
    responses: { "2XX": { description: "The event was received." } },
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
function describeOperation(route: RouteDefinition, path: string): object {
  const isCall = route.access.kind === "model" && (route.body ?? route.modelForm) !== undefined;
  const parameters = [
    ...pathParameters(path),
    ...queryParameters(route),
    ...(route.takesIdempotencyKey ? [IDEMPOTENCY_KEY] : []),
  ];
  return {
    tags: [route.tag],
    summary: route.summary,
    operationId: operationId(route.method, path),
    description: accessText(route),
    security:
      route.access.kind === "public"
        ? []
        : keyInEitherHeader("scope" in route.access ? [route.access.scope] : []),
    ...(parameters.length > 0 && { parameters }),
    ...(route.body && { requestBody: requestBody(route.body, route) }),
    ...formBody(route),
    responses: {
      ...Object.fromEntries(errorStatuses(route, path, isCall).map((s) => [s, errorReference(s)])),
      ...Object.fromEntries(
        Object.entries(route.responses).map(([status, response]) => [
          status,
          describeResponse(Number(status), response, isCall ? CALL_HEADERS : REQUEST_HEADERS),
        ]),
      ),
    },
  };
}

/** Returns the operation id, for example `postV1KeysId` for `POST /v1/keys/{id}`. */
function operationId(method: string, path: string): string {
  const words = path.split(/[^A-Za-z0-9]+/).filter((word) => word !== "");
  return (
    method.toLowerCase() + words.map((word) => word[0]!.toUpperCase() + word.slice(1)).join("")
  );
}

function accessText({ access, method, path }: RouteDefinition): string {
  if (access.kind === "public") return "Needs no API key.";
  if (access.kind === "self") return "Needs a secret key or a management key.";
  if (access.kind === "operator") return "Needs an operator key.";
  if (access.kind === "session") return "Needs a session of the dashboard.";
  if (access.kind === "model" || access.kind === "storage") {
    return `Needs a secret key with the scope \`${access.scope}\`.`;
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

function queryParameters(route: RouteDefinition): object[] {
  if (route.query === undefined) return [];
  const { properties = {}, required = [] } = describeSchema(route.query);
  return Object.entries(properties).map(([name, { description, ...schema }]) => ({
    name,
    in: "query",
    required: required.includes(name),
    ...(description !== undefined && { description }),
    schema,
  }));
}

function requestBody(
  body: TSchema,
  { allowsUnknownFields = false, bodyIsOptional }: RouteDefinition,
) {
  const { examples, ...schema } = describeSchema(body);
  if (schema.type === "object" && !allowsUnknownFields) schema.additionalProperties ??= false;
  return {
    required: bodyIsOptional !== true,
    ...(allowsUnknownFields && { description: "Other members are passed on to the provider." }),
    content: { [JSON_TYPE]: { schema, ...exampleOf(examples) } },
  };
}

/**
 * Returns the request body of a route that accepts a form. Includes JSON if the route also accepts
 * it.
 */
function formBody(route: RouteDefinition): object {
  const { body, form, modelForm, allowsUnknownFields } = route;
  const described =
    form === undefined ? modelForm && describeModelForm(modelForm) : describeSchema(form);
  if (described === undefined) return {};
  const json = body && requestBody(body, route);
  return {
    requestBody: {
      required: true,
      ...(allowsUnknownFields && { description: "Other members are passed on to the provider." }),
      content: { ...json?.content, [FORM_TYPE]: { schema: described } },
    },
  };
}

function describeModelForm({ fields, files }: ModelForm): JsonSchema {
  const { examples: _, properties = {}, required = [], ...schema } = describeSchema(fields);
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

function mediaType(described: TSchema): object {
  const { examples, ...schema } = describeSchema(described);
  return { schema, ...exampleOf(examples) };
}

/** Returns the schema's first example as a member of the media type, where readers look for it. */
function exampleOf(examples: unknown): { readonly example?: unknown } {
  return Array.isArray(examples) && examples.length > 0 ? { example: examples[0] } : {};
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

function describeResponse(status: number, response: ResponseDescription, headers: object): object {
  if (status >= 400 && response.schema === undefined) {
    return errorDescription(status, response.description);
  }
  const type = response.contentType ?? (response.schema && JSON_TYPE);
  const { eventSchema } = response;
  return {
    description: response.description,
    headers,
    ...(type !== undefined && {
      content: {
        [type]: response.schema ? mediaType(response.schema) : {},
        ...(eventSchema && { [EVENT_STREAM_TYPE]: mediaType(eventSchema) }),
      },
    }),
  };
}

/** A JSON Schema (draft 2020-12, which OpenAPI 3.1 uses unchanged). */
interface JsonSchema {
  [keyword: string]: unknown;
  type?: string | string[];
  description?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: unknown;
  examples?: unknown;
}

/** Keywords whose member names are names of the API, such as field names, not keywords of JSON Schema. */
const NAMED: ReadonlySet<string> = new Set(["properties", "patternProperties", "$defs"]);
/** Keywords that hold values of the API, not schemas. */
const VALUES: ReadonlySet<string> = new Set(["const", "enum", "default", "example", "examples"]);
const ANY_NAME = "^.*$";

/**
 * Returns the schema as plain JSON, in the form that is best for readers and code generators. A
 * union of constants becomes an enumeration, a union with null becomes two types, and a record
 * becomes additional properties. The result accepts the same values, except that it does not limit
 * integers to safe integers.
 */
export function describeSchema(schema: TSchema): JsonSchema {
  return simplify(JSON.parse(JSON.stringify(schema))) as JsonSchema;
}

function simplify(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(simplify);
  if (!isObject(value)) return value;
  const schema: JsonSchema = {};
  for (const [keyword, member] of Object.entries(value)) {
    if (VALUES.has(keyword)) schema[keyword] = member;
    else if (NAMED.has(keyword) && isObject(member)) schema[keyword] = simplifyNamed(member);
    else schema[keyword] = simplify(member);
  }
  const union = unionWithNull(unionOfConstants(flatUnion(schema)));
  return typedEnumeration(recordAsAdditional(withoutNoise(union)));
}

function simplifyNamed(members: JsonSchema): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(members).map(([name, member]) => [name, simplify(member)]),
  );
}

/** Returns the options of a union, or none if the schema has other constraints too. */
function optionsOf(schema: JsonSchema): JsonSchema[] {
  const { anyOf, type, enum: values } = schema;
  if (!Array.isArray(anyOf) || type !== undefined || values !== undefined) return [];
  return anyOf.every(isObject) ? anyOf : [];
}

function flatUnion(schema: JsonSchema): JsonSchema {
  const options = optionsOf(schema);
  if (options.length === 0) return schema;
  const flat = options.flatMap((option) => {
    const inner = Object.keys(option).join() === "anyOf" ? optionsOf(option) : [];
    return inner.length > 0 ? inner : [option];
  });
  return { ...schema, anyOf: flat };
}

function unionOfConstants(schema: JsonSchema): JsonSchema {
  const options = optionsOf(schema);
  const constants = options.filter((option) => Object.keys(option).sort().join() === "const,type");
  if (constants.length < 2) return schema;
  const { anyOf: _, ...others } = schema;
  const enumeration = { enum: constants.map((option) => option.const) };
  if (constants.length === options.length) return { ...others, ...enumeration };
  const rest = options.filter((option) => !constants.includes(option));
  return { ...others, anyOf: [typedEnumeration(enumeration), ...rest] };
}

function unionWithNull(schema: JsonSchema): JsonSchema {
  const options = optionsOf(schema);
  const [nonNull, ...more] = options.filter((option) => option.type !== "null");
  if (options.length !== 2 || nonNull === undefined || more.length > 0) return schema;
  const { anyOf: _, ...others } = schema;
  const { type, const: constant, enum: values, ...rest } = nonNull;
  const allowed = constant === undefined ? values : [constant];
  if (Array.isArray(allowed)) return { ...rest, ...others, enum: [...allowed, null] };
  return typeof type === "string" ? { ...rest, ...others, type: [type, "null"] } : schema;
}

function recordAsAdditional(schema: JsonSchema): JsonSchema {
  const { patternProperties, ...others } = schema;
  if (!isObject(patternProperties) || others.additionalProperties !== undefined) return schema;
  if (Object.keys(patternProperties).join() !== ANY_NAME) return schema;
  return { ...others, additionalProperties: patternProperties[ANY_NAME] };
}

function withoutNoise(schema: JsonSchema): JsonSchema {
  const { maximum, minimum, properties, ...others } = schema;
  return {
    ...others,
    ...(properties && Object.keys(properties).length > 0 && { properties }),
    ...(minimum !== undefined && minimum !== Number.MIN_SAFE_INTEGER && { minimum }),
    ...(maximum !== undefined && maximum !== Number.MAX_SAFE_INTEGER && { maximum }),
  };
}

/**
 * Adds the types of its values to an enumeration. Documentation and code generators show it better.
 */
function typedEnumeration(schema: JsonSchema): JsonSchema {
  if (!Array.isArray(schema.enum) || schema.type !== undefined) return schema;
  const types = [...new Set(schema.enum.map((value) => (value === null ? "null" : typeof value)))];
  return { type: types.length === 1 ? types[0] : types, ...schema };
}

function isObject(value: unknown): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
