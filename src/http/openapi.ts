import { AUTHENTICATION, ERROR_COMPONENTS, SECURITY_SCHEME } from "./openapi-components.ts";
import { describeOperation } from "./openapi-operation.ts";
import type { RouteDefinition } from "./route.ts";

export interface DescriptionInfo {
  /** Of the gateway. */
  readonly version: string;
}

const INTRODUCTION = `One HTTP interface, in the conventions of OpenAI's API, in front of many AI providers.

Every request carries an API key as \`Authorization: Bearer <key>\`. A **secret key** (\`gateway_sk_…\`) calls models, and administrative endpoints whose scope it holds; a **management key** (\`gateway_mgmt_…\`) administers and calls no models.

Errors of every endpoint have one shape, and its \`code\` is stable. Every response carries \`X-Gateway-Request-ID\`.`;

/**
 * The gateway's description (OpenAPI 3.1), made from the same definitions that serve the requests.
 * Of two routes that differ only in the names of their parameters the first one is described.
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
    security: [{ [SECURITY_SCHEME]: [] }],
    tags: [...new Set(routes.map((route) => route.tag))].map((name) => ({ name })),
    paths: Object.fromEntries(
      [...paths.values()].map(({ path, operations }) => [path, operations]),
    ),
    components: { securitySchemes: AUTHENTICATION, ...ERROR_COMPONENTS },
  };
}

/** `/v1/keys/:id` and `/v1/models/*` as `/v1/keys/{id}` and `/v1/models/{id}`: ids may hold slashes. */
function templatedPath(path: string): string {
  return path.replace(/:(\w+)/g, "{$1}").replace(/\*$/, path.includes(":id") ? "{rest}" : "{id}");
}
