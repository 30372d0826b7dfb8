import type { TSchema } from "typebox";
import {
  CALL_HEADERS,
  errorDescription,
  errorReference,
  REQUEST_HEADERS,
  SECURITY_SCHEME,
} from "./openapi-components.ts";
import { describeSchema } from "./openapi-schema.ts";
import type { Access, ResponseDescription, RouteDefinition } from "./route.ts";

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

/** The operation object of a route. @param path with its parameters in braces */
export function describeOperation(route: RouteDefinition, path: string): object {
  const isCall = route.access.kind === "model" && route.body !== undefined;
  const parameters = [
    ...pathParameters(path),
    ...queryParameters(route),
    ...(route.takesIdempotencyKey ? [IDEMPOTENCY_KEY] : []),
  ];
  return {
    tags: [route.tag],
    summary: route.summary,
    operationId: operationId(route.method, path),
    description: accessText(route.access),
    security:
      route.access.kind === "public"
        ? []
        : [{ [SECURITY_SCHEME]: "scope" in route.access ? [route.access.scope] : [] }],
    ...(parameters.length > 0 && { parameters }),
    ...(route.body && { requestBody: requestBody(route.body, route.allowsUnknownFields ?? false) }),
    ...(route.form && {
      requestBody: {
        required: true,
        content: { [FORM_TYPE]: { schema: describeSchema(route.form) } },
      },
    }),
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

/** `POST /v1/keys/{id}` is postV1KeysId. */
function operationId(method: string, path: string): string {
  const words = path.split(/[^A-Za-z0-9]+/).filter((word) => word !== "");
  return (
    method.toLowerCase() + words.map((word) => word[0]!.toUpperCase() + word.slice(1)).join("")
  );
}

function accessText(access: Access): string {
  if (access.kind === "public") return "Needs no API key.";
  if (access.kind === "self") return "Needs a secret key or a management key.";
  if (access.kind === "operator") return "Needs an operator key.";
  if (access.kind === "model" || access.kind === "storage") {
    return `Needs a secret key with the scope \`${access.scope}\`.`;
  }
  const isUnlimited = access.kind === "administration" && access.refusesLimitedKeys;
  const secret = isUnlimited ? "a secret key without limits of its own" : "a secret key";
  return `Needs a management key, or ${secret} with the scope \`${access.scope}\`.`;
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

function requestBody(body: TSchema, allowsUnknownFields: boolean): object {
  const { examples, ...schema } = describeSchema(body);
  if (schema.type === "object" && !allowsUnknownFields) schema.additionalProperties ??= false;
  return {
    required: true,
    ...(allowsUnknownFields && { description: "Other members are passed on to the provider." }),
    content: { [JSON_TYPE]: { schema, ...exampleOf(examples) } },
  };
}

function mediaType(described: TSchema): object {
  const { examples, ...schema } = describeSchema(described);
  return { schema, ...exampleOf(examples) };
}

/** The schema's first example, where readers look for it: beside the schema. */
function exampleOf(examples: unknown): { readonly example?: unknown } {
  return Array.isArray(examples) && examples.length > 0 ? { example: examples[0] } : {};
}

/** What can go wrong before a handler is asked, and in every call of a model (contract's order of checks). */
function errorStatuses(route: RouteDefinition, path: string, isCall: boolean): number[] {
  // Every route refuses query parameters that it does not know.
  const statuses = [400, 500];
  if (route.access.kind !== "public") statuses.push(401, 403, 503);
  if (path.includes("{")) statuses.push(404);
  if (route.body ?? route.form) statuses.push(413, 415);
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
